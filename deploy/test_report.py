"""Counts the test cases of Bazel runs and tells which of them failed or were skipped, and why.

    test_report.py NAME=EXIT_CODE=BUILD_EVENT_FILE...

A build event file is what `bazel test --build_event_json_file` leaves. The cases of a target are
those of its GoogleTest or JUnit report, else the lines `ok NAME`, `not ok NAME` and
`skip NAME # REASON` of its log, else the target itself. A target that was not built, crashed, ran
out of time or failed in spite of its report is one failed case. The last line is
`N passed, N failed[, N skipped]`; the exit code is 0 if some passed and none failed.
"""

import collections
import json
import re
import sys
import urllib.parse
import xml.etree.ElementTree

LOG_TAIL_LINES = 100

# Bazel's test set-up writes this line before the test's own output.
BAZEL_RULER = "-" * 77

# One outcome of a case; `state` is passed, failed or skipped, `text` is why.
Case = collections.namedtuple("Case", "label name state text")

TAP_LINE = re.compile(r"(ok|not ok|skip) (.+)")


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def cases_of_xml(label, text):
    """The cases of a report that the test wrote; None if Bazel made it up from the exit code."""
    # Bytes that XML forbids come from messages that quote binary data.
    text = re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
    try:
        root = xml.etree.ElementTree.fromstring(text)
    except xml.etree.ElementTree.ParseError:
        return None
    if root.tag == "testsuites" and "name" not in root.attrib:
        return None
    cases = []
    for case in root.iter("testcase"):
        name = ".".join(filter(None, [case.get("classname"), case.get("name")]))
        bad = case.findall("failure") + case.findall("error")
        skipped = case.find("skipped")
        if bad:
            text = "\n".join(part.text or part.get("message", "") for part in bad)
            cases.append(Case(label, name, "failed", text))
        elif skipped is not None:
            # GoogleTest's message is the place in the source, then the reason.
            lines = skipped.get("message", "").strip().splitlines() or ["no reason given"]
            cases.append(Case(label, name, "skipped", " ".join(lines[1:] or lines)))
        elif case.get("status") == "notrun":
            cases.append(Case(label, name, "skipped", "disabled in the source"))
        else:
            cases.append(Case(label, name, "passed", ""))
    return cases


def cases_of_log(label, log):
    """The cases of a test that prints a line for each; what precedes a failure explains it."""
    cases = []
    since = []
    for line in log.splitlines():
        match = TAP_LINE.fullmatch(line)
        if not match:
            since.append(line)
            continue
        name, _, reason = match.group(2).partition(" # ")
        if match.group(1) == "ok":
            cases.append(Case(label, name, "passed", ""))
        elif match.group(1) == "skip":
            cases.append(Case(label, name, "skipped", reason or "no reason given"))
        else:
            cases.append(Case(label, name, "failed", "\n".join(since[-LOG_TAIL_LINES:])))
        since = []
    return cases


def cases_of_target(label, result):
    """`result` is the testResult of a build event."""
    outputs = {
        output["name"]: urllib.parse.unquote(urllib.parse.urlparse(output.get("uri", "")).path)
        for output in result.get("testActionOutput", [])
    }
    status = result.get("status", "NO_STATUS")
    log = read(outputs.get("test.log", "")).partition(f"\n{BAZEL_RULER}\n")[2]
    cases = cases_of_xml(label, read(outputs.get("test.xml", "")))
    if cases is None:
        cases = cases_of_log(label, log)
        if not cases and status == "PASSED":
            cases = [Case(label, "", "passed", "")]
    if status != "PASSED" and not any(case.state == "failed" for case in cases):
        tail = "\n".join(log.splitlines()[-LOG_TAIL_LINES:])
        cases.append(Case(label, "", "failed", f"the test ended with {status}\n{tail}"))
    return cases


def cases_of_run(name, exit_code, path):
    tests, results, broken = set(), {}, {}
    for line in read(path).splitlines():
        event = json.loads(line)
        kind, identity = next(iter(event["id"].items()))
        label = identity.get("label", "") if isinstance(identity, dict) else ""
        if kind == "testResult":
            key = (label, identity.get("run"), identity.get("shard"))
            results[key] = event.get("testResult", {})
        elif kind == "targetConfigured" and "testSize" in event.get("configured", {}):
            tests.add(label)
        elif kind == "targetCompleted" and not event.get("completed", {}).get("success"):
            broken[label] = event.get("aborted", {}).get("description") or "it was not built"
        elif kind in ("pattern", "unconfiguredLabel", "configuredLabel") and "aborted" in event:
            broken[label or str(identity)] = event["aborted"].get("description", "not analysed")
    cases = [case for (label, *_), result in results.items()
             for case in cases_of_target(label, result)]
    ran = {label for label, *_ in results}
    for label in tests - ran:
        broken.setdefault(label, "it did not run")
    # A test that ran and failed is no completed target for Bazel, and was counted above.
    cases += [Case(label, "", "failed", text) for label, text in sorted(broken.items())
              if label not in ran]
    no_tests = exit_code == 4
    if exit_code and not no_tests and not any(case.state == "failed" for case in cases):
        cases.append(Case(name, "", "failed", f"bazel ended with exit code {exit_code}"))
    return cases


def count(cases):
    states = collections.Counter(case.state for case in cases)
    line = f"{states['passed']} passed, {states['failed']} failed"
    return line + (f", {states['skipped']} skipped" if states["skipped"] else "")


def show(title, state, runs):
    """Lists the cases in this state, each once, with the runs that it was so in."""
    names = {}
    for run, cases in runs.items():
        for case in cases:
            if case.state == state:
                names.setdefault(case, []).append(run)
    if names:
        print(f"\n{title}")
    for case, where in names.items():
        print(f"  {case.label} {case.name}".rstrip() + f" ({', '.join(where)})")
        for line in case.text.strip().splitlines():
            print(f"      {line}")


def main(arguments):
    runs = {}
    for argument in arguments:
        name, exit_code, path = argument.split("=", 2)
        runs[name] = cases_of_run(name, int(exit_code), path)
    show("Skipped:", "skipped", runs)
    show("Failed:", "failed", runs)
    print()
    for name, cases in runs.items():
        print(f"of the {name} run: {count(cases)}")
    cases = [case for cases in runs.values() for case in cases]
    states = {case.state for case in cases}
    if "passed" not in states and "failed" not in states:
        print("no test matches")
    print(count(cases), flush=True)
    return 0 if "passed" in states and "failed" not in states else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
