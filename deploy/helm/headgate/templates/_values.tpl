{{- /* Values that this chart would ignore in silence are refused: those that an earlier chart had at the top, and typos. */ -}}

{{- define "headgate.movedValues" -}}
adminService: admin.service and admin.enabled
affinity: decisions.affinity
autoscaling: decisions.autoscaling
nodeSelector: decisions.nodeSelector
persistence: decisions.persistence
podAnnotations: decisions.podAnnotations
podDisruptionBudget: decisions.podDisruptionBudget
replicas: decisions.replicas
resources: decisions.resources
rules: admin.rules
service: decisions.service
tolerations: decisions.tolerations
topologySpreadConstraints: decisions.topologySpreadConstraints
workers: decisions.workers
{{- end -}}

{{- define "headgate.knownValues" -}}
[admin, decisions, enabled, existingSecret, global, image, imagePullSecrets, networkPolicy, serviceAccount, serviceMonitor, serviceToken, settings]
{{- end -}}

{{- define "headgate.refuseIgnoredValues" -}}
{{- $moved := include "headgate.movedValues" . | fromYaml -}}
{{- $known := include "headgate.knownValues" . | fromYamlArray -}}
{{- $sentences := list -}}
{{- range $name := keys .Values | sortAlpha -}}
{{- if hasKey $moved $name -}}
{{- $sentences = append $sentences (printf "%s is now %s" $name (get $moved $name)) -}}
{{- else if not (has $name $known) -}}
{{- $sentences = append $sentences (printf "%s is no value of this chart" $name) -}}
{{- end -}}
{{- end -}}
{{- if $sentences -}}
{{- fail (printf "values would be ignored: %s. A release of an earlier chart needs the steps in docs/how-to/upgrade.md" (join ", " $sentences)) -}}
{{- end -}}
{{- end -}}
