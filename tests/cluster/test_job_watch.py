"""What the watch of a job makes of its workers' messages: who has failed, who hangs, and when all is over."""

import pytest

from scheduler.workers.job_watch import ANSWER_S, LEFT_S, NOBODY, PATIENCE_S, JobWatch

LIMIT_S = 10.0


def watch_of(*messages, at=0.0):
    watch = JobWatch(len(messages), LIMIT_S)
    for number, message in enumerate(messages):
        watch.heard(number, {"host": "a", "process": 7 + number, **message}, at)
    return watch


def test_a_job_is_over_when_each_worker_has_told_so():
    watch = watch_of({"status": 0}, {})
    assert watch.status is None
    assert watch.fault(LIMIT_S / 2) is None
    watch.heard(1, {"status": 0}, 1.0)
    watch.lost(1, 1.0)
    assert (watch.status, watch.fault(1e9)) == (0, None)


def test_a_connection_that_breaks_is_a_killed_worker_at_the_step_of_the_others():
    watch = watch_of({"round": 7}, {"round": 12, "doing": "evaluating"})
    watch.lost(1, 1.0)
    assert watch.fault(1.0) is None  # the other says first how far the job is
    watch.heard(0, {"round": 15}, 1.1)
    fault = watch.fault(1.1)
    assert fault.text == "worker 1 (a, process 8) was killed or has crashed at step 15, evaluating"
    watch = watch_of({}, {"round": 12})
    watch.lost(1, 1.0)
    assert "at step 12" in watch.fault(1.0 + ANSWER_S).text


def test_the_worker_that_was_lost_first_is_the_cause():
    watch = watch_of({"round": 3}, {}, {})
    for number, lost_s in ((2, 1.2), (1, 1.0), (0, 1.1)):  # MPI has ended 0 and 2
        watch.lost(number, lost_s)
    assert watch.fault(1.2).text == "worker 1 (a, process 8) was killed or has crashed at step 3"


def test_what_workers_have_in_common_is_said_once():
    same = {"status": 1, "reason": "E: odd", "shown": "E: odd\n"}
    watch = watch_of(same, same)
    assert watch.last_words() == [(0, "E: odd\n")]
    assert watch.fault(0.0).text == "all 2 workers, at step 0: E: odd"
    watch = watch_of({**same, "follows": 2, "shown": ""}, same)
    assert watch.fault(0.0).text == "worker 1 (a, process 8), at step 0: E: odd"
    watch = watch_of({**same, "follows": 1, "shown": "AbortedError"}, same)
    assert watch.last_words() == [(1, "E: odd\n")]
    watch = watch_of({**same, "follows": 1}, {})
    assert watch.last_words() == [(0, "E: odd\n")]  # nobody has told another reason
    watch.lost(1, 0.0)
    assert watch.last_words() == []
    watch = watch_of({**same, "follows": 1}, {"status": 0})
    assert watch.last_words() == []  # it has left


def test_the_cause_is_named_and_not_what_follows_on_it():
    watch = watch_of({"status": 1, "reason": "AbortedError: MPI failed", "follows": 1}, {}, {})
    assert watch.fault(PATIENCE_S) is None
    watch.heard(1, {"status": 3, "reason": "ValueError: odd"}, 1.0)
    assert watch.fault(1.0 + PATIENCE_S).text == "worker 1 (a, process 8), at step 0: ValueError: odd"
    assert watch.fault(1.0 + PATIENCE_S).status == 3


def test_programs_that_end_together_with_a_status_have_said_why():
    watch = watch_of({"status": 2}, {"status": 2})
    assert (watch.status, watch.fault(0.0)) == (2, None)
    watch = watch_of({"status": 1, "reason": "E", "follows": 2}, {"status": 1, "reason": "E"})
    assert watch.fault(0.0).number == 1


WAITING = {"round": 5, "waits": True, "still_s": LEFT_S}


@pytest.mark.parametrize(
    ("own", "others", "text", "status"),
    [
        ({"left": 3}, [WAITING], "with status 3, while the other one needs it", 3),
        ({}, [WAITING, WAITING], "with status 0, while the others need it", 1),
        ({"left": None}, [WAITING], "at the end of its program, while the other one needs it", 1),
        ({"left": 1, "reason": "odd"}, [WAITING], "with status 1 (odd), while the other one needs it", 1),
        ({}, [{"status": 1, "follows": 1, "reason": "E"}], "with status 0, while the other one needs it", 1),
    ],
)
def test_a_program_that_has_ended_while_all_others_need_it_is_the_fault(own, others, text, status):
    watch = watch_of({"round": 7, "status": 0, **own}, *others)
    fault = watch.fault(PATIENCE_S)
    assert (fault.number, fault.status) == (0, status)
    assert fault.text == f"worker 0 (a, process 7) left the job at step 7 {text}"


def test_a_watchdog_shorter_than_that_blames_who_has_left_all_the_same():
    watch = JobWatch(2, LEFT_S - 1)
    watch.heard(0, {"status": 0}, 0.0)
    watch.heard(1, {"waits": True, "still_s": LEFT_S - 1}, 0.0)
    assert (
        watch.fault(0.0).text == "worker 0 left the job at step 0 with status 0, while the other one needs it"
    )


@pytest.mark.parametrize(
    "other",
    [{**WAITING, "still_s": LEFT_S - 1}, {"still_s": 9.0}, {"status": 1, "reason": "E: own"}],
    ids=["waits shortly", "works by itself", "has failed by itself"],
)
def test_a_program_that_has_ended_is_no_fault_while_another_worker_does_without_it(other):
    fault = watch_of({"status": 0, "left": 3}, WAITING, other).fault(PATIENCE_S)
    assert fault is None or fault.number == 2


@pytest.mark.parametrize(
    ("other", "number", "words"),
    [
        ({"round": 5, "still_s": LIMIT_S}, 1, "it is between two steps"),
        ({"still_s": LIMIT_S}, 1, "it has not come to its first step"),
        ({"round": 5, "still_s": LIMIT_S - 1}, None, ""),  # its rounds move
        ({"round": 5, "status": 0}, 1, "left the job at step 5 with status 0"),
        ({"round": 4, "waits": True, "still_s": LIMIT_S}, 1, "all wait for each other"),
        ({"round": 5, "still_s": 99.0, "doing": "evaluating", "doing_s": 99.0}, None, ""),
        (
            {"still_s": 101.0, "doing": "evaluating", "doing_s": 100.0},
            1,
            "evaluating: it has done so for 100 s",
        ),
    ],
)
def test_a_worker_that_others_wait_for_hangs(other, number, words):
    watch = watch_of({"round": 5, "waits": True, "still_s": LIMIT_S}, other, at=100.0)
    fault = watch.fault(100.0)
    if number is None:
        assert fault is None
    else:
        assert fault.number == number
        assert words in fault.text


def test_one_of_which_nothing_is_heard_has_stopped():
    watch = watch_of({"waits": True}, {"round": 3})
    watch.heard(0, {"waits": True, "still_s": LIMIT_S}, LIMIT_S)
    fault = watch.fault(LIMIT_S)
    assert (fault.number, "nothing heard for 10 s" in fault.text) == (1, True)
    assert "at step 3:" in fault.text
    watch = watch_of({}, {"round": 3})
    watch.heard(0, {"waits": True, "round": 9, "still_s": LIMIT_S}, LIMIT_S)
    assert "at step 9:" in watch.fault(LIMIT_S).text  # up to which the other one did not wait


def test_a_start_counts_from_the_launch_and_has_a_limit_of_its_own():
    watch = JobWatch(2, LIMIT_S, start_limit_s=30.0, began=100.0)
    assert watch.fault(129.0) is None
    assert not watch.all_have_started
    fault = watch.fault(130.0)
    assert (fault.number, fault.text) == (NOBODY, "launch: no worker has started within 30 s")
    watch.heard(0, {}, 129.0)
    assert watch.fault(130.0).text == "worker 1 has not started within 30 s"
    watch.heard(1, {}, 130.0)
    assert watch.all_have_started
    assert watch.fault(131.0) is None
    assert JobWatch(2, 0.0, start_limit_s=0.0).fault(1e9) is None
