"""Events to Kafka: an idempotent producer, and exact accounts of what the brokers have confirmed."""

from headgate.adapters.kafka.sink import KafkaSink

__all__ = ["KafkaSink"]
