"""Planted faults in the watchdog: alarms that are false, late, lost, or told twice."""

from __future__ import annotations

from tests.core.fault import Fault

FAULTS = [
    # Clocks.
    Fault(
        "a comment counts as a token",
        "stream_clocks",
        "_COMMENT_BYTES = 24",
        "_COMMENT_BYTES = 0",
    ),
    Fault(
        "the clock runs while a neighbour's prompt is read",
        "stream_clocks",
        "is_stalled = is_read if clock.signs.is_writing else others_read",
        "is_stalled = False",
    ),
    Fault(
        "an overdue prompt excuses all others for ever",
        "stream_clocks",
        "not clock.signs.is_writing and not clock.is_overdue for clock in self",
        "not clock.signs.is_writing for clock in self",
    ),
    Fault(
        "prompts that are read together do not delay each other",
        "stream_clocks",
        "                newcomer.ahead += other.signs.prompt_tokens\n"
        "                other.ahead += newcomer.signs.prompt_tokens\n",
        "                pass\n",
    ),
    Fault(
        "the speed of reading does not matter",
        "stream_clocks",
        "rules.first_token_factor * (clock.ahead * each + steps)",
        "0",
    ),
    Fault(
        "a prompt need not wait for those who write",
        "stream_clocks",
        "_STEPS = 2",
        "_STEPS = 0",
    ),
    Fault(
        "the speed of writing does not matter",
        "stream_clocks",
        "max(rules.gap_floor, rules.gap_factor * signs.gap)",
        "rules.gap_floor",
    ),
    Fault(
        "what was not measured has no time",
        "stream_clocks",
        "return max(rules.unknown, rules.first_token_floor)",
        "return rules.first_token_floor",
    ),
    Fault(
        "a slow client is the backend's fault",
        "stream_clocks",
        "clock.has_moved or clock.signs.is_held or",
        "clock.has_moved or",
    ),
    Fault(
        "a server that loads its model is stuck",
        "stream_clocks",
        "(signs.may_load and clock.signs.received == 0)",
        "False",
    ),
    Fault(
        "a fork that only comments is stuck",
        "stream_clocks",
        "return not clock.signs.is_writing and is_dumb and is_commenting",
        "return False",
    ),
    Fault(
        "comments excuse everything",
        "stream_clocks",
        "return not clock.signs.is_writing and is_dumb and is_commenting",
        "return is_commenting",
    ),
    Fault(
        "strangers' prompts excuse a stall for ever",
        "stream_clocks",
        "0 < self._strange_reading <= self._rules.unknown",
        "0 < self._strange_reading",
    ),
    Fault(
        "strangers' prompts excuse nothing",
        "stream_clocks",
        "others_read = signs.leaves_reading or 0 < self._strange_reading <= self._rules.unknown",
        "others_read = signs.leaves_reading",
    ),
    Fault(
        "a closed request's prompt excuses nothing",
        "stream_clocks",
        "others_read = signs.leaves_reading or 0",
        "others_read = 0",
    ),
    Fault(
        "slots that move say nothing of streams",
        "stream_clocks",
        "if looks.shows_all_moving(sum(clock.signs.width for clock in self)):",
        "if False:",
    ),
    # What is stuck.
    Fault(
        "the gateway's own pause is the backend's fault",
        "watchdog",
        "min(now - before, LONGEST_TICK_SECONDS)",
        "now - before",
    ),
    Fault(
        "a single stuck stream condemns its backend",
        "stuck",
        "return self._quiet + LONGEST_TICK_SECONDS >= min(clock.quiet for clock in overdue)",
        "return True",
    ),
    Fault(
        "the same figures again and again are no wedge",
        "stuck",
        "return self._looks.still >= _LOOKS",
        "return False",
    ),
    Fault(
        "slots that do not answer are no wedge",
        "stuck",
        "if self._unanswered >= self._rules.mute_after:",
        "if False:",
    ),
    Fault(
        "a wedge is told at each tick",
        "stuck",
        "            self._is_wedged = True\n            yield",
        "            yield",
    ),
    Fault(
        "a stuck stream is told at each tick",
        "stuck",
        "            clock.is_told = True\n",
        "",
    ),
    Fault(
        "one look is enough to miss a request",
        "stuck",
        "_LOOKS = 2",
        "_LOOKS = 0",
    ),
    Fault(
        "a request is missed while a batch runs",
        "stuck",
        "self._missing + 1 if is_short and can_miss else 0",
        "self._missing + 1 if is_short else 0",
    ),
    Fault(
        "the one that works is taken for the leaked one",
        "stuck",
        "sorted(quiet, key=lambda clock: -clock.quiet)[: max(0, short)]",
        "sorted(self._clocks, key=lambda clock: clock.quiet)[: max(0, short)]",
    ),
    Fault(
        "streams that move do not clear the strikes",
        "stuck",
        "            self._strikes = 0\n            self._swallows = False\n",
        "            pass\n",
    ),
    Fault(
        "a server may swallow requests for ever",
        "stuck",
        "            self._strikes += len(found)\n",
        "            pass\n",
    ),
    Fault(
        "an answer in between does not count",
        "stuck",
        "self.is_streaming = has_served or any(",
        "self.is_streaming = any(",
    ),
    # Quarantine.
    Fault(
        "one good sign ends a quarantine",
        "quarantine",
        "_GOOD_SIGNS = 2",
        "_GOOD_SIGNS = 0",
    ),
    Fault(
        "a quarantine never gets longer",
        "quarantine",
        "self._shortest * 2.0**self._times",
        "self._shortest",
    ),
    Fault(
        "a quarantine gets longer for ever",
        "quarantine",
        "        self._times = 0\n\n    def tick",
        "        pass\n\n    def tick",
    ),
    Fault(
        "looks that show nothing good end a quarantine",
        "quarantine",
        "self._good + 1 if looks.is_newly_idle or looks.has_moved else 0",
        "self._good + 1",
    ),
    Fault(
        "old compute errors count again after a quarantine",
        "watchdog",
        "        self._old_errors = signs.errors\n        for",
        "        for",
    ),
    Fault(
        "what is over is not told",
        "watchdog",
        "        if self._stuck.is_alive:\n            yield from self._end(Kind.WEDGED, signs)\n",
        "",
    ),
    # Pace.
    Fault(
        "what is slow becomes usual at once",
        "pace",
        "        if not is_slower:\n            self._usual",
        "        if True:\n            self._usual",
    ),
    Fault(
        "one slow stretch is enough",
        "pace",
        "if self._row == 2:",
        "if self._row == 1:",
    ),
    Fault(
        "more writers are slower than fewer",
        "pace",
        "usual = self._usual.setdefault(sequences, gap)",
        "usual = self._usual.setdefault(0, gap)",
    ),
    Fault(
        "a lasting pace never becomes usual",
        "pace",
        "if self._slow_for > _PATIENCE:",
        "if False:",
    ),
    # Cooldown.
    Fault(
        "what was refused counts as done",
        "cooldown",
        "        if is_early or len",
        "        self._done.append(now)\n        if is_early or len",
    ),
    Fault(
        "an hour never ends",
        "cooldown",
        "            self._done.popleft()\n",
        "            break\n",
    ),
]
