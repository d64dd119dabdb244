"""Finds all symptoms of a snapshot, which `status`, the page, the doctor and the watch of each stream show."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path

from twofold.infra.project.feature import features
from twofold.status.parts.snapshot import Snapshot
from twofold.status.symptoms.symptom import SEVERITIES, Symptom, SymptomKind

_OURS = [
    value
    for module in pkgutil.iter_modules([str(Path(__file__).parent)])
    if module.name.endswith("_symptoms")
    for value in vars(import_module(f"{__package__}.{module.name}")).values()
    if isinstance(value, SymptomKind)
]
KINDS: tuple[SymptomKind, ...] = (
    *_OURS,
    *(pkgutil.resolve_name(name) for feature in features() for name in feature.symptoms),
)
"""Every kind that a module `*_symptoms.py` of this folder declares, and those of features."""


def symptoms_of(now: Snapshot) -> list[Symptom]:
    """Returns all that is wrong, the worst first."""
    symptoms = [symptom for kind in KINDS for symptom in kind.symptoms(now)]
    return sorted(symptoms, key=lambda symptom: SEVERITIES.index(symptom.severity))
