"""Reads the little languages of /proc and /sys. Pure: text in, values out."""

from __future__ import annotations


def chosen(text: str) -> str:
    """The word in brackets, or the only one: how the kernel shows a choice.

    >>> chosen("none [mq-deadline] kyber"), chosen("tsc"), chosen("a b")
    ('mq-deadline', 'tsc', '')
    """
    words = text.split()
    for word in words:
        if word.startswith("[") and word.endswith("]"):
            return word[1:-1]
    return words[0] if len(words) == 1 else ""


def choices(text: str) -> tuple[str, ...]:
    """All words of a choice.

    >>> choices("none [mq-deadline] kyber")
    ('none', 'mq-deadline', 'kyber')
    """
    return tuple(word.strip("[]") for word in text.split())


def number_list(text: str) -> list[int]:
    """The numbers of a list of ranges, as cpusets are written.

    >>> number_list("0-2,8"), number_list("")
    ([0, 1, 2, 8], [])
    """
    found: list[int] = []
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        if first.strip().isdigit() and (not dash or last.strip().isdigit()):
            found += range(int(first), int(last if dash else first) + 1)
    return found


def list_text(numbers: list[int]) -> str:
    """The same the other way round.

    >>> list_text([0, 1, 2, 8]), list_text([4])
    ('0-2,8', '4')
    """
    parts: list[str] = []
    run: list[int] = []
    for number in [*sorted(numbers), -1]:
        if run and number != run[-1] + 1:
            parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
            run = []
        run.append(number)
    return ",".join(parts)


def field_of(text: str, name: str) -> str:
    """The value behind `name:` in a file of such lines.

    >>> field_of("Name:\\tpython\\nSeccomp:\\t2\\n", "Seccomp")
    '2'
    """
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == name:
            return value.strip()
    return ""


def limit_of(limits: str, name: str, *, hard: bool) -> int | None:
    """A limit of /proc/self/limits; None: unlimited, or not there.

    >>> limit_of("Max open files            1024            524288            files", "Max open files", hard=True)
    524288
    """
    for line in limits.splitlines():
        if line.startswith(name):
            values = line[len(name) :].split()
            if len(values) >= 2:
                value = values[1 if hard else 0]
                return int(value) if value.isdigit() else None
    return None


def kib_of(meminfo: str, name: str) -> int:
    """Bytes of a line of /proc/meminfo, 0 when there is none.

    >>> kib_of("MemTotal:       2048 kB", "MemTotal")
    2097152
    """
    value = field_of(meminfo, name).split()
    return int(value[0]) * 1024 if value and value[0].isdigit() else 0


def cpu_quota(cpu_max: str) -> float | None:
    """Cores' worth of time in a control group's cpu.max.

    >>> cpu_quota("150000 100000"), cpu_quota("max 100000")
    (1.5, None)
    """
    words = cpu_max.split()
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit():
        return int(words[0]) / int(words[1])
    return None
