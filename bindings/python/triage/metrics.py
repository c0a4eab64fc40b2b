"""The metrics of triage in the registry of prometheus_client, beside those that a service has already.

    import prometheus_client, triage.metrics

    prometheus_client.REGISTRY.register(triage.metrics.Collector())

prometheus_client is imported when a registry first asks. Without it, `triage.metrics_text()` has the same as text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ._arguments import wrong
from ._policy import Runtime, metrics_text

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["Collector"]


class Collector:
    """Collects the statistics of all policies of some runtimes at each scrape; without runtimes, of those of `triage.load`.

    One collector for all runtimes, for a registry takes a family of metrics once: `Collector(first, second)`. Policies of several runtimes
    are told apart by their labels `policy` and `path`. A runtime that is closed has no metrics any more.
    """

    def __init__(self, *runtimes: Runtime) -> None:
        for each in runtimes:
            if not isinstance(each, Runtime):
                raise wrong("metrics.Collector", "runtimes", "one triage.Runtime or several", each)
        self._runtimes = runtimes

    def describe(self) -> list[Metric]:
        """Nothing: a registry would collect to know the names, and a policy may be loaded later."""
        return []

    def collect(self) -> Iterator[Metric]:
        try:
            from prometheus_client.parser import text_string_to_metric_families
        except ImportError as error:
            raise ImportError(f"triage.metrics needs prometheus_client (pip install prometheus_client): {error}") from error
        texts = [each.metrics_text() for each in self._runtimes if not each.closed] if self._runtimes else [metrics_text()]
        families: dict[str, Metric] = {}
        for text in texts:
            for family in text_string_to_metric_families(text):
                if family.name in families:
                    families[family.name].samples.extend(family.samples)
                else:
                    families[family.name] = family
        return iter(families.values())
