"""TrainingPolicies in files, checked as the API server checks them, so that typos are refused."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import IO, Any

from kfext.cli.documents import load, title_of
from kfext.core.settings.table import OF_A_JOB, TABLE, parse_setting
from kfext.errors import UserError
from kfext.model.parameters import SECTIONS, Fairness, ParameterRow, rows
from kfext.model.policy import Mode, TrainingPolicy, parse_policy
from kfext.model.tolerant import mapping
from kfext.names import DOMAIN
from kfext.state.running.policy import Policy
from kfext.state.running.registry import POLICIES

_SPEC = ("namespaceSelector", "weight", "settings", *SECTIONS, "companion")
_SETTINGS = tuple(key.removeprefix(f"{DOMAIN}/") for key in TABLE if key not in OF_A_JOB)


def read_policies(files: Iterable[IO[bytes]]) -> list[TrainingPolicy]:
    """Return the policies of files, in order. Raises UserError."""
    policies = []
    for document in (document for file in files for document in load(file)):
        if mapping(document).get("kind") != "TrainingPolicy":
            raise UserError(
                f"{title_of(document)} is no TrainingPolicy, and --policy accepts no other kind"
            )
        _check(mapping(mapping(document).get("spec")), title_of(document))
        policies.append(parse_policy(document))
    return policies


def _check(spec: Mapping[str, Any], title: str) -> None:
    where = f"{title}: spec"
    _check_fields(spec, _SPEC, where)
    settings = mapping(spec.get("settings"))
    _check_fields(settings, _SETTINGS, f"{where}.settings")
    for key, value in settings.items():
        place = f"{where}.settings.{key}"
        if not isinstance(value, str):
            raise UserError(f'{place} {value!r} is not text: quote it, e.g. "off"')
        parse_setting(f"{DOMAIN}/{key}", value, place=place)
    for section, type_ in SECTIONS.items():
        parameters, known = mapping(spec.get(section)), rows(type_)
        _check_fields(parameters, known, f"{where}.{section}")
        for name, value in parameters.items():
            _check_parameter(known[name], value, f"{where}.{section}.{name}")
    by_usage = mapping(spec.get("queue")).get("fairness") == Fairness.USAGE
    if by_usage and mapping(spec.get("namespaceSelector")):
        rule = "usage orders the whole cluster: leave out namespaceSelector"
        raise UserError(f"{where}.queue.fairness {rule}")
    companion = mapping(spec.get("companion"))
    _check_fields(companion, [policy.name for policy in POLICIES], f"{where}.companion")
    for policy in POLICIES:
        _check_choice(policy, mapping(companion.get(policy.name)), f"{where}.companion")


def _check_choice(policy: Policy, choice: Mapping[str, Any], where: str) -> None:
    where = f"{where}.{policy.name}"
    _check_fields(choice, ("mode", "parameters"), where)
    _check_word(choice.get("mode"), tuple(Mode), f"{where}.mode")
    parameters = mapping(choice.get("parameters"))
    _check_fields(parameters, policy.parameters, f"{where}.parameters")
    for name, value in parameters.items():
        allowed = policy.parameters[name]
        number = type(value) in {int, float}
        if not number or not allowed.minimum <= value <= allowed.maximum:
            raise UserError(
                f"{where}.parameters.{name} {value!r} is not a number from {allowed.minimum:g} to "
                f"{allowed.maximum:g}, e.g. {allowed.default:g}"
            )


def _check_parameter(row: ParameterRow, value: object, where: str) -> None:
    if value is None:
        return  # as if it were absent
    if words := row.schema.get("enum"):
        _check_word(value, words, where)
    try:
        row.parse(value)
    except ValueError as error:
        example = f", e.g. {row.default or row.example}"
        raise UserError(f"{where} {value!r} is not valid{example}") from error


def _check_fields(fields: Iterable[str], allowed: Collection[str], where: str) -> None:
    for name in fields:
        if name not in allowed:
            raise UserError(f"{where} has no field {name!r}: it has {', '.join(allowed)}")


def _check_word(value: object, allowed: Sequence[str], where: str) -> None:
    if value is not None and value not in allowed:
        quoted = ", ".join(f'"{choice}"' for choice in allowed)
        raise UserError(f"{where} {value!r} is none of {quoted}")
