"""The home keeps which domains its platform runs."""

from __future__ import annotations

from twofold.infra.project.chosen_domains import choose_domains, chosen_domains
from twofold.infra.project.settings import Settings


def test_a_choice_is_kept_until_the_next_one(settings: Settings) -> None:
    assert chosen_domains(settings) == []
    choose_domains(settings, ["shop", "flights", "shop"])
    assert chosen_domains(settings) == ["shop", "flights"]
    choose_domains(settings, ["flights"])
    assert chosen_domains(settings) == ["flights"]
