"""Sessions that are broken on purpose: `amalgam conform` names the rule that each one breaks."""

import importlib
import json
import subprocess

import pytest
from conftest import EXAMPLES, example

from amalgam_solver import session as sessions
from amalgam_solver.participant import SectionError
from amalgam_solver.session import Refused, Session


class AnyOrder(Session):
    """Takes calls in any order."""

    def _run(self, call, context):
        run = super()._run(call, context)
        run.expect = lambda *_: None
        return run


class AppliesTwice(Session):
    """Applies a repeated Commit, as if the stage were still there."""

    def commit(self, header, columns):
        run = self.run
        if run.last_commit is not None and header.context.step + 1 == run.step:
            run.solver.particles.position += 1e-3
        return super().commit(header, columns)


class OtherRuns(Session):
    """Answers whatever run is named."""

    def _run(self, call, context):
        if self.run is None:
            raise Refused("NOT_FOUND", "no run")
        return self.run


class AnyEpoch(Session):
    def _check_beginning(self, request):
        pass


class NoRunIsEarly(Session):
    """Refuses a call without a run with the wrong code."""

    def _run(self, call, context):
        if self.run is None:
            raise Refused("FAILED_PRECONDITION", "no run")
        return super()._run(call, context)


class ReadsToTheEnd(Session):
    """Looks at columns only when the stream has ended."""

    def read(self, call, messages):
        return super().read(call, iter(list(messages)))


class ForgetsStage(Session):
    """Integrates a repeated call anew, from where the last one ended."""

    def integrate(self, header, columns):
        self.run.last_integrate = None
        self.run.phase = "begun" if header.repetition == 0 else self.run.phase
        self.run.solver.gravity = self.run.solver.gravity * 1.001
        return super().integrate(header, columns)


class NoViolations(Session):
    """Refuses a wrong section without saying which key."""

    def initialize(self, request):
        try:
            return super().initialize(request)
        except Refused as error:
            raise Refused(error.code, error.text) from None


class AnotherSection(Session):
    """Takes snapshots whose bytes are damaged."""

    def restore(self, header, columns):
        run = self._run("Restore", header.context)
        run.solver.restore = lambda snapshot: None
        columns.raw = lambda name: run.label
        return super().restore(header, columns)


class AlwaysNext(Session):
    """Begins the next step though there was no Survey."""

    def commit(self, header, columns):
        self.run.near.drift = lambda: 0.0
        return super().commit(header, columns)


@pytest.mark.parametrize(
    "session, rules",
    [
        (AnyOrder, {"begin-first", "integrate-first", "not-after-integrate", "stage-order", "step-number"}),
        (AppliesTwice, {"commit-repeated"}),
        (OtherRuns, {"new-run", "shutdown"}),
        (AnyEpoch, {"epoch", "epoch-of-others"}),
        (NoRunIsEarly, {"no-run"}),
        (ReadsToTheEnd, {"refused-at-once"}),
        (ForgetsStage, {"integrate-repeated"}),
        (NoViolations, {"section-faults"}),
        (AnotherSection, {"save-restore"}),
        (AlwaysNext, {"next-needs-survey"}),
    ],
)
def test_broken_sessions_are_told_their_rule(amalgam, served, monkeypatch, tmp_path, session, rules):
    monkeypatch.setattr(importlib.import_module("amalgam_solver.serve"), "Session", session)
    address, file = served(example("balls").Balls), tmp_path / "findings.json"
    only = [argument for rule in rules for argument in ("--only", rule)]
    settings = ["--settings", EXAMPLES / "balls.toml", "--json", file]
    done = subprocess.run([amalgam, "conform", address, *settings, *only], capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    found = {finding["rule"] for finding in json.loads(file.read_text()) if "failed" in finding["verdict"]}
    assert found == rules, done.stdout
    assert "->" in done.stdout, "the messages show it"


def test_sections_are_refused_with_their_keys():
    balls = example("balls").Balls
    world = sessions.World("balls", (0, 1), 0, 1)
    with pytest.raises(SectionError) as error:
        balls({"positions": [], "mass": 1.0, "radius": 1.0, "colour": "red"}, world)
    assert error.value.faults == (("colour", "there is no such key"),)
