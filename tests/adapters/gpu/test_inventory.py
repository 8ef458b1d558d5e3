import pynvml
import pytest

from kfext.gpu.agent.main import FAKE_INVENTORY, node_inventory
from kfext.gpu.device import inventory
from kfext.gpu.device.inventory import Card, InventoryError
from tests.adapters.gpu.fake_nvml import FakeCard, FakeNvml


def fake_nvml(
    monkeypatch: pytest.MonkeyPatch, *cards: FakeCard, installed: bool = True
) -> FakeNvml:
    """Replace the functions of pynvml by a fake."""
    fake = FakeNvml(list(cards), installed=installed)
    for name in [name for name in vars(FakeNvml) if name.startswith("nvml")]:
        assert callable(getattr(pynvml, name)), "the library has it"
        monkeypatch.setattr(pynvml, name, getattr(fake, name))
    return fake


TROUBLES: dict[str, tuple[FakeCard, str]] = {
    "a healthy card": (FakeCard("GPU-1"), ""),
    "a card without MIG": (FakeCard("GPU-1", split=None), ""),
    "a card that reports no errors": (FakeCard("GPU-1", reports=False), ""),
    "a card without modes": (FakeCard("GPU-1", mode=None), ""),
    "a card with a driver that does not know MPS": (FakeCard("GPU-1", clients=None), ""),
    "a card that is split by MIG": (FakeCard("GPU-1", split=True), "it is split by MIG"),
    "a card for a single process": (
        FakeCard("GPU-1", mode=pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS),
        "its compute mode is EXCLUSIVE_PROCESS, not DEFAULT",
    ),
    "a card for no process": (
        FakeCard("GPU-1", mode=pynvml.NVML_COMPUTEMODE_PROHIBITED),
        "its compute mode is PROHIBITED, not DEFAULT",
    ),
    "a card with processes of MPS": (
        FakeCard("GPU-1", clients=2),
        "NVIDIA's MPS daemon shares it among programs",
    ),
}


@pytest.mark.parametrize(("card", "trouble"), TROUBLES.values(), ids=TROUBLES)
def test_whether_a_card_can_be_shared(
    card: FakeCard, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvml(monkeypatch, card)
    want = Card("GPU-1", 16 * 1024, trouble, utilisation=0.75, power=412.5)
    assert inventory.Nvml().cards() == [want]


def test_a_card_without_measurements_can_be_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml(monkeypatch, FakeCard("GPU-1", measured=False))
    assert inventory.Nvml().cards() == [Card("GPU-1", 16 * 1024)]


def test_an_unreadable_card_does_not_affect_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml(monkeypatch, FakeCard("GPU-1", unreadable=True), FakeCard("GPU-2"))
    unreadable, healthy = inventory.Nvml().cards()
    assert "cannot be read" in unreadable.trouble
    assert not healthy.trouble


LOST = {
    "without an error": ([], "the driver does not show it"),
    "with an error": ([("GPU-1", 79)], "it reported Xid 79"),
}


@pytest.mark.parametrize(("errors", "trouble"), LOST.values(), ids=LOST)
def test_a_lost_card_is_reported_and_excluded_and_hides_no_other(
    errors: list[tuple[str, int]], trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = fake_nvml(monkeypatch, FakeCard("GPU-1"), FakeCard("GPU-2"))
    nvml = inventory.Nvml()
    nvml.cards()
    fake.present[0].lost = pynvml.NVML_ERROR_GPU_IS_LOST
    fake.errors.extend(errors)
    assert [card.trouble for card in nvml.cards()] == [trouble, ""]
    fake.present[0].lost = None
    assert [card.trouble for card in nvml.cards()] == [trouble, ""]


@pytest.mark.parametrize(
    "answer",
    [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_IRQ_ISSUE],
)
def test_an_agent_starts_beside_a_lost_card(answer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml(monkeypatch, FakeCard("GPU-1", lost=answer), FakeCard("GPU-2"))
    assert [(card.uuid, card.trouble) for card in inventory.Nvml().cards()] == [
        ("GPU-2", ""),
        ("unknown-0", "the driver does not show it"),
    ]


@pytest.mark.parametrize(("number", "trouble"), [(79, "it reported Xid 79"), (31, "")])
def test_a_hardware_error_excludes_a_card_and_an_error_of_a_program_does_not(
    number: int, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = fake_nvml(monkeypatch, FakeCard("GPU-1"), FakeCard("GPU-2"))
    nvml = inventory.Nvml()
    fake.errors.extend([("GPU-2", 43), ("GPU-2", number)])
    for _ in range(2):
        result = nvml.cards()
        assert [card.trouble for card in result] == ["", trouble]
        assert [card.errors for card in result] == [{}, {43: 1, number: 1}]


def test_an_inventory_without_a_driver_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FAKE_INVENTORY, raising=False)
    fake_nvml(monkeypatch, installed=False)
    with pytest.raises(InventoryError, match="does not start"):
        node_inventory()


def test_a_variable_selects_a_fake_inventory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAKE_INVENTORY, f"{__name__}:FakeInventory")
    assert node_inventory().cards() == [Card("GPU-fake", 1)]


class FakeInventory:
    def cards(self) -> list[Card]:
        return [Card("GPU-fake", 1)]
