# Every command does all of its own set-up, from a fresh clone, with nothing but Python 3.11+.
.PHONY: help serve demo test test-long fuzz chaos check check-deploy check-wheel check-deps format bench docs sbom requirements pictures screenshots schema messages clean

VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# Coverage is traced where it is enforced (core and dataplane) by the tests that have to reach all of it: tracing
# doubles the time of a test. Of the property tests these are the ones that reach a line that no other test reaches.
TRACED := tests/unit/core tests/unit/dataplane tests/contract $(addprefix tests/property/test_, \
  counts.py giving_back.py gossip.py header_lines.py leases.py multi_descriptor.py thinning.py) \
  $(addprefix tests/unit/test_, facade.py http_reservations.py never_without_rules.py sync.py)
UNTRACED := tests/fuzz tests/integration tests/acceptance tests/docs tests/architecture \
  tests/unit tests/property $(addprefix --ignore=, $(filter tests/unit/% tests/property/%, $(TRACED)))
# One more than there are processors: these tests often wait for a server.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# The tests start `headgate` hundreds of times. Where Python may not keep bytecode (some containers say so), each start
# compiles a few hundred modules again: 1.0 s of processor time for a verb instead of 0.26 s.
unexport PYTHONDONTWRITEBYTECODE

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/' | expand -t 20

serve: .serve-environment  ## the service on port 8080 and the admin API on 8081, with example rules, on servers of their own
	@$(BIN)/headgate serve --rules examples/rules.yaml --database embedded://

demo: .environment  ## the same with a made-up company: rules, users, traffic, and a past; data in .headgate-demo
	@$(BIN)/headgate demo

test: .environment .arq-environment .servers check  ## format, lint, types, layers and the whole test suite, with coverage
	@$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q -n auto --dist worksteal -m "not serial" $(TRACED)
	$(PYTEST) -q -n $(WORKERS) --dist worksteal -m "not serial" $(UNTRACED)
	$(PYTEST) -q -m serial $$(grep -rlF mark.serial tests --include='test_*.py' --exclude-dir=chaos)
	@$(BIN)/coverage combine -q
	$(BIN)/coverage report --fail-under=100
	@$(BIN)/python -m tests.support.optional_servers

test-long: .environment  ## the property tests, and Lua against Python, with at least 500,000 steps per algorithm
	HYPOTHESIS_PROFILE=long $(PYTEST) -q -rP tests/property tests/integration/test_redis_twins.py

fuzz: .environment .h2spec  ## our protocol engines against those of others, on random bytes from a new seed
	FUZZ_ROUNDS=500000 FUZZ_SEED=$$(date +%s) $(PYTEST) -q -n auto tests/fuzz

chaos: .environment  ## outages of real servers, changes under load, starts; many minutes: a table and tests/chaos/figures.json
	$(PYTEST) -q tests/chaos

check: .environment  ## format, lint, types, layers
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary --num-workers $$(getconf _NPROCESSORS_ONLN)
	@$(BIN)/lint-imports --no-logo 2>/dev/null | tail -n 4

check-deploy: .deploy-environment  ## the files in deploy/ that cannot run here, with their linters and schemas
	@tools/check-deploy $(VENV)-deploy

check-wheel: .environment  ## the wheel, in clean environments with each extra alone: what the extra promises works
	@tools/check-wheel

check-deps: .deploy-environment  ## known vulnerabilities of what is pinned; says what could not be asked
	@$(VENV)-deploy/bin/python tools/check_deps.py $(VENV)-deploy/bin/pip-audit $(wildcard requirements/*.txt)

format: .environment  ## format and fix what can be fixed
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --fix --quiet .

bench: .bench-environment  ## the benchmarks, beside the peers: a table, bench/results.json and plots
	@$(VENV)-bench/bin/python -m bench

pictures: .bench-environment  ## draw the pictures in docs/ again
	@$(VENV)-bench/bin/python docs/draw_algorithms.py

docs: .docs-environment  ## the pages in docs/ as a site with search, in build/docs
	@rm -rf build/docs
	@$(VENV)-docs/bin/sphinx-build -b html -j auto -q -n -W --keep-going docs build/docs
	@python3 tools/check_site.py build/docs
	@echo "Built: build/docs/index.html"

sbom: .deploy-environment  ## the software bill of materials of what `make serve` installs, in dist/headgate.cdx.json
	@mkdir -p dist
	@$(VENV)-deploy/bin/python -W ignore -m cyclonedx_py requirements --pyproject pyproject.toml --output-reproducible \
	  --output-file dist/headgate.cdx.json requirements/serve.txt
	@echo "Written: dist/headgate.cdx.json"

screenshots: .environment  ## take the pictures of the dashboard and of headgate top in docs/pictures again (needs Chromium)
	@$(BIN)/python tools/screenshots.py

schema: .environment  ## write sql/schema.sql anew, from the migrations
	@$(BIN)/python -m tests.integration.schema_text

messages: .environment  ## write docs/reference/messages.md anew, from the source
	@$(BIN)/python tools/messages.py

requirements:  ## compile the pinned requirements again
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --all-extras --group dev pyproject.toml -o requirements/dev.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --all-extras --group bench --group dev -c requirements/dev.txt pyproject.toml -o requirements/bench.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --extra standard --group build -c requirements/dev.txt pyproject.toml -o requirements/serve.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --group deploy -c requirements/dev.txt pyproject.toml -o requirements/deploy.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --group arq pyproject.toml -o requirements/arq.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --group docs -c requirements/dev.txt pyproject.toml -o requirements/docs.txt
	echo pip | uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-header --no-annotate - -o requirements/pip.txt

clean:  ## remove what was made
	rm -rf $(VENV) $(VENV)-arq $(VENV)-bench $(VENV)-deploy $(VENV)-docs build .deploy-tools .servers .coverage* .mypy_cache .mypy_worker.*.json .ruff_cache .pytest_cache .hypothesis

.environment:
	@tools/environment $(VENV) requirements/dev.txt

# What serving needs, in the same environment: a quarter of the packages, and all of them are in dev.txt too.
.serve-environment:
	@tools/environment $(VENV) requirements/serve.txt requirements/dev.txt

.servers:
	@tools/servers .servers

# The conformance suite for HTTP/2, where there is Go.
.h2spec:
	@[ -x .servers/bin/h2spec ] || ! command -v go >/dev/null || \
	  GOBIN=$(CURDIR)/.servers/bin go install github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible || true

.bench-environment:
	@tools/environment $(VENV)-bench requirements/bench.txt

.arq-environment:
	@tools/environment $(VENV)-arq requirements/arq.txt

.deploy-environment:
	@tools/environment $(VENV)-deploy requirements/deploy.txt

.docs-environment:
	@tools/environment $(VENV)-docs requirements/docs.txt

.PHONY: .environment .h2spec .arq-environment .deploy-environment .docs-environment .serve-environment .servers .bench-environment
