import threading

from kfext.gpu.hook.hidden_thread import HiddenThread


def test_a_hidden_thread_is_none_of_the_program_s_and_can_be_waited_for() -> None:
    goes_on, began = threading.Event(), threading.Event()

    def act() -> None:
        began.set()
        goes_on.wait(60)

    hidden = HiddenThread(act)
    assert began.wait(60)
    assert not [thread for thread in threading.enumerate() if thread.ident == hidden._number]
    goes_on.set()
    hidden.join(60)
    assert hidden._ended.is_set()


def test_a_hidden_thread_does_not_wait_for_itself() -> None:
    ended = threading.Event()

    def act() -> None:
        made.wait(60)
        found[0].join(60)
        ended.set()

    made, found = threading.Event(), list[HiddenThread]()
    found.append(HiddenThread(act))
    made.set()
    assert ended.wait(30)
