"""Checks of processors, memory, clock and interpreter. Pure."""

from __future__ import annotations

from tuning.doctor.facts import SystemFacts
from tuning.doctor.finding import Finding, KernelSetting, Level
from tuning.doctor.kernel_text import list_text

CLOCK = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
FAST_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "riscv_clocksource")
"""Those that a process reads without a system call."""
HALT_POLL = "/sys/module/haltpoll/parameters/guest_halt_poll_ns"
HALT_POLL_NS = 200_000
"""The kernel's own default: longer than a small durable write takes on a fast disk."""
_GOOD_GOVERNORS = ("", "performance")


def check_cores(facts: SystemFacts) -> Finding:
    """A quota below the number of cores stops all of them in the middle of their work."""
    count, quota = len(facts.cores), facts.cpu_quota
    good = quota is None or quota >= count
    return Finding(
        check="cores",
        level=Level.OK if good else Level.SLOW,
        found=f"{count}" if quota is None else f"{count}, and time for {quota:g} of them",
        wanted="time for each core that may be used",
        cost="" if good else "shards are stopped for tens of milliseconds whenever the quota is used up",
        fix="" if good else f"ringlog start --shards {facts.usable_cores} (or docker run --cpus={count} …)",
    )


def check_governor(facts: SystemFacts) -> Finding:
    """A core that was asleep takes its time until it is fast."""
    slow = [core for core in facts.cores if core.governor not in _GOOD_GOVERNORS]
    found = sorted({core.governor or "none" for core in facts.cores})
    return Finding(
        check="cpu governor",
        level=Level.SLOW if slow else Level.OK,
        found=", ".join(found) or "none",
        wanted="performance, or none (a hypervisor decides)",
        cost="after each pause work begins at a low clock: latency of single records" if slow else "",
        fix="cpupower frequency-set -g performance" if slow else "",
        settings=tuple(
            KernelSetting(f"/sys/devices/system/cpu/cpu{core.number}/cpufreq/scaling_governor", "performance")
            for core in slow
        ),
    )


def check_idle_cores(facts: SystemFacts) -> Finding:
    """A virtual core that has given itself up is woken through the hypervisor: measured, 31 to 37 µs for a word to
    another core and back, and 6 while it looks for work."""
    poll_ns = facts.halt_poll_ns
    good = poll_ns != 0
    remedy = KernelSetting(HALT_POLL, str(HALT_POLL_NS))
    return Finding(
        check="idle cores",
        level=Level.OK if good else Level.SLOW,
        found="the host decides" if poll_ns is None else f"look for work for {poll_ns / 1000:g} µs",
        wanted=f"{HALT_POLL_NS // 1000} µs before a virtual core is given up, or the host decides",
        cost=""
        if good
        else "each wake-up goes through the hypervisor: latency, and CPU time of whoever wakes",
        fix="" if good else remedy.command,
        settings=() if good else (remedy,),
    )


def check_memory_monitor(facts: SystemFacts) -> Finding:
    """A thread of the kernel that looks which memory is in use holds its core meanwhile: measured, 2 to 5 ms twice a
    second with 24 GiB. `ringlog tune` leaves it alone: somebody wants something by it, memory given back, say."""
    switches = facts.memory_monitors
    stops = [KernelSetting(path, "off" if path.endswith("/state") else "N") for path in switches]
    return Finding(
        check="memory monitor",
        level=Level.SLOW if switches else Level.OK,
        found="DAMON is at work" if switches else "none",
        wanted="none",
        cost="a core stands still for milliseconds at a time: p99 of small loads" if switches else "",
        fix=" && ".join(stop.command for stop in stops),
    )


def check_huge_pages(facts: SystemFacts) -> Finding:
    """Buffers ask for them (madvise)."""
    good = facts.huge_pages in ("always", "madvise", "")
    return Finding(
        check="huge pages",
        level=Level.OK if good else Level.SLOW,
        found=facts.huge_pages or "not in this kernel",
        wanted="madvise or always",
        cost="" if good else "more page faults, and more pages to pin for each direct write",
        fix="" if good else f"echo madvise > {HUGE_PAGES}",
        settings=() if good else (KernelSetting(HUGE_PAGES, "madvise"),),
    )


def check_numa(facts: SystemFacts) -> Finding:
    """Memory of another node is slower to reach, and rings cross the link between them."""
    nodes = facts.numa_nodes
    good = len(nodes) <= 1
    home = facts.storage.numa_node if facts.storage.numa_node in nodes else nodes[0] if nodes else 0
    cores = list_text([core.number for core in facts.cores if core.numa_node == home])
    return Finding(
        check="numa",
        level=Level.OK if good else Level.SLOW,
        found=f"{max(1, len(nodes))} node{'' if good else 's'}",
        wanted="one node, or ringlog on the cores of one",
        cost="" if good else "rings and buffers are read across the link between sockets",
        fix="" if good else f"numactl --cpunodebind={home} --membind={home} ringlog start (cores {cores})",
    )


def check_clock(facts: SystemFacts) -> Finding:
    """Every loop reads the clock several times."""
    good = facts.clock_source in (*FAST_CLOCKS, "")
    better = next((clock for clock in FAST_CLOCKS if clock in facts.clock_sources), None)
    setting = () if good or better is None else (KernelSetting(CLOCK, better),)
    return Finding(
        check="clock source",
        level=Level.OK if good else Level.SLOW,
        found=facts.clock_source or "not told",
        wanted=" or ".join(FAST_CLOCKS[:2]),
        cost="" if good else "each look at the clock is a system call of about a microsecond",
        fix="" if good else setting[0].command if setting else "boot with clocksource=tsc tsc=reliable",
        settings=setting,
    )


def check_interpreter(facts: SystemFacts) -> Finding:
    """All that brokers and clients decide is Python."""
    good = not facts.interpreter_is_plain
    return Finding(
        check="interpreter",
        level=Level.OK if good else Level.SLOW,
        found=f"{facts.interpreter or 'not told'}{'' if good else ', built without --enable-optimizations'}",
        wanted="a build that was optimised by profile, as those of distributions are",
        cost=""
        if good
        else "the Python of every process takes half as much time again: latency, small batches",
        fix="" if good else "make clean && make setup PYTHON=/usr/bin/python3 (or pip install there)",
    )
