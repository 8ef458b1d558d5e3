import threading

from kfext.hook.apart import Apart


def test_a_thread_apart_is_none_of_the_program_s_and_can_be_waited_for() -> None:
    goes_on, began = threading.Event(), threading.Event()

    def act() -> None:
        began.set()
        goes_on.wait(60)

    apart = Apart(act)
    assert began.wait(60)
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and thread.daemon is False:
            thread.join(60)
    assert not [one for one in threading.enumerate() if one.ident == apart._number]
    goes_on.set()
    apart.join(60)
    assert apart._ended.is_set()


def test_a_thread_apart_does_not_wait_for_itself() -> None:
    ended = threading.Event()

    def act() -> None:
        made.wait(60)
        found[0].join(60)
        ended.set()

    made, found = threading.Event(), list[Apart]()
    found.append(Apart(act))
    made.set()
    assert ended.wait(30)
