"""Labelled logs to judge templates by: every line is made from a template that is known.

Each family writes as a well-known kind of program does: its own header, its own sort of values.
Frequencies are skewed, as they are in real logs, and values include words without a digit (names
of users, hosts, files), lists of any length and words that are no values at all (states, verbs).

    python -m tests.builtin.log_families FOLDER

prints the grouping accuracy for real samples: ``NAME_2k.log`` beside ``NAME_2k.log_structured.csv``
with a column ``EventId``, as the LogHub collection has them.
"""

from __future__ import annotations

import csv
import random
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from toolpost.builtin.logs.layout import Layout
from toolpost.builtin.logs.mining import Miner

USERS = [
    "root",
    "admin",
    "test",
    "guest",
    "oracle",
    "alice",
    "bob",
    "carol",
    "dave",
    "eve",
    "frank",
    "grace",
    "heidi",
    "ivan",
    "judy",
    "mallory",
    "niaj",
    "olivia",
    "peggy",
    "rupert",
    "sybil",
    "trent",
    "victor",
    "walter",
    "webmaster",
    "postgres",
    "nagios",
    "ftp",
    "mysql",
    "pi",
    "ubuntu",
    "support",
    "user1",
    "dev2",
    "svc-backup",
    "cyrus",
    "news",
    "jenkins",
    "deploy",
    "gitlab",
]
HOSTS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "db-master",
    "cache-a",
    "web-01",
    "web-02",
    "edge7",
    "mail.example.com",
    "ns1.example.org",
    "backup.internal.lan",
    "play.google.com",
    "proxy.cse.example.hk",
    "print-server",
]
FILES = [
    "/etc/hosts",
    "/var/lib/app/state.db",
    "/home/alice/report.txt",
    "/tmp/part-00017",
    "/usr/share/zoneinfo",
    "/data/warehouse/orders",
    "/srv/www/index.html",
    "/opt/app/conf/app.yaml",
]


APPS = (
    "com.apple.icloud.fmfd.heartbeat",
    "com.apple.Safari.SafeBrowsing.Update",
    "com.apple.EscrowSecurityAlert.daily",
    "com.apple.CacheDelete.daily",
    "com.android.systemui",
    "com.tencent.mobile.qq",
)
STATES = (
    "active",
    "blocked",
    "closing",
    "critical",
    "normal",
    "running",
    "starting",
    "idle",
    "off",
)


class Family(NamedTuple):
    """A kind of log: how a line begins, and what it may say."""

    name: str
    head: Callable[[random.Random, datetime], str]
    templates: Sequence[str]


def _values(r: random.Random) -> dict[str, Callable[[], str]]:
    def ip() -> str:
        return ".".join(str(r.randrange(1, 255)) for _ in range(4))

    def hexes(n: int) -> str:
        return "".join(r.choice("0123456789abcdef") for _ in range(n))

    def number() -> str:
        return str(r.choice((r.randrange(10), r.randrange(1000), r.randrange(10**7))))

    return {
        "int": number,
        "float": lambda: f"{r.random() * 100:.{r.choice((1, 2, 4))}f}",
        "ip": ip,
        "port": lambda: str(r.randrange(1024, 65535)),
        "user": lambda: r.choice(USERS),
        "host": lambda: r.choice((*HOSTS, ip())),
        "path": lambda: r.choice(FILES),
        "hex": lambda: "0x" + hexes(r.choice((4, 8, 16))),
        "id": lambda: hexes(12),
        "uuid": lambda: "-".join(hexes(n) for n in (8, 4, 4, 4, 12)),
        "block": lambda: f"blk_{r.choice(('', '-'))}{r.randrange(10**15, 10**18)}",
        "attempt": lambda: f"attempt_14450872{r.randrange(10**5)}_0005_m_{r.randrange(99):06}_0",
        "app": lambda: r.choice(APPS),
        "tag": lambda: r.choice(("View Lock", "RILJ", "*alarm*", "NetworkStats", "Wake for sync")),
        "ipv6": lambda: ":".join(hexes(4) for _ in range(8)).upper(),
        "mac": lambda: ":".join(hexes(2) for _ in range(6)),
        "url": lambda: (
            f"https://{r.choice(HOSTS)}/{r.choice('abc')}/{number()}?q={r.choice(USERS)}"
        ),
        "ints": lambda: ", ".join(number() for _ in range(r.randrange(1, 6))),
        "paths": lambda: " ".join(r.choice(FILES) for _ in range(r.randrange(1, 5))),
        "size": lambda: (
            f"{(n := r.randrange(10**6))} bytes" + (f" ({n / 1024:.2f} KB)" if n > 1024 else "")
        ),
        "duration": lambda: r.choice(("<1 sec", "00:17", "01:02:03", "00:01")),
        "maybe": lambda: r.choice(("", r.choice(HOSTS))),
        "day": lambda: (
            f"{r.choice(('Sun', 'Mon', 'Sat'))} {r.choice(('Jul', 'Aug'))} {r.randrange(1, 29)}"
        ),
        "time": lambda: f"{r.randrange(24):02}:{r.randrange(60):02}:{r.randrange(60):02}",
    }


def _pid(r: random.Random) -> int:
    return r.randrange(100, 32000)


def _syslog(*tags: str) -> Callable[[random.Random, datetime], str]:
    def head(r: random.Random, t: datetime) -> str:
        tag = r.choice(tags)
        pid = f"[{_pid(r)}]" if tag != "kernel" else ""
        return f"{t:%b} {t.day:2} {t:%H:%M:%S} combo {tag}{pid}: "

    return head


def _application(r: random.Random, t: datetime) -> str:
    where = r.choice(("main", "pool-1-thread-7", "AsyncDispatcher event handler"))
    return (
        f"{t:%Y-%m-%d %H:%M:%S},{t.microsecond // 1000:03} {_LEVEL(r)} [{where}] org.app.Service: "
    )


def _LEVEL(r: random.Random) -> str:
    return r.choice(("INFO", "INFO", "INFO", "WARN", "ERROR"))


FAMILIES = (
    Family(
        "sshd",
        _syslog("sshd"),
        (
            "Failed password for {user} from {ip} port {port} ssh2",
            "Failed password for invalid user {user} from {ip} port {port} ssh2",
            "Accepted publickey for {user} from {ip} port {port} ssh2",
            "Invalid user {user} from {ip}",
            "pam_unix(sshd:auth): check pass; user unknown",
            ("pam_unix(sshd:auth): authentication failure; logname= uid={int} euid={int} tty=ssh "
            "ruser= rhost={host} user={user}"),
            "pam_unix(sshd:session): session opened for user {user} by (uid={int})",
            "pam_unix(sshd:session): session closed for user {user}",
            "Received disconnect from {ip}: {int}: Bye Bye [preauth]",
            "Received disconnect from {ip}: {int}: Closed due to user request. [preauth]",
            "Connection closed by {ip} [preauth]",
            "Did not receive identification string from {ip}",
            "input_userauth_request: invalid user {user} [preauth]",
            "fatal: Write failed: Connection reset by peer [preauth]",
            "reverse mapping checking getaddrinfo for {host} [{ip}] failed - POSSIBLE BREAK-IN!",
            "Disconnecting: Too many authentication failures [preauth]",
        ),
    ),
    Family(
        "hdfs",
        lambda r, t: f"{t:%y%m%d %H%M%S} {_pid(r)} {_LEVEL(r)} dfs.DataNode$PacketResponder: ",
        (
            "Receiving block {block} src: /{ip}:{port} dest: /{ip}:{port}",
            "Received block {block} of size {int} from /{ip}",
            "PacketResponder {int} for block {block} terminating",
            ("BLOCK* NameSystem.addStoredBlock: blockMap updated: {ip}:{port} is added to {block} "
            "size {int}"),
            "BLOCK* NameSystem.allocateBlock: {path}. {block}",
            "Verification succeeded for {block}",
            "Deleting block {block} file {path}",
            "BLOCK* NameSystem.delete: {block} is added to invalidSet of {ip}:{port}",
            "{ip}:{port} Served block {block} to /{ip}",
            "{ip}:{port}:Got exception while serving {block} to /{ip}:",
            "Unexpected error trying to delete block {block}. BlockInfo not found in volumeMap.",
        ),
    ),
    Family(
        "cluster",
        lambda r, t: (
            f"{t:%Y-%m-%d %H:%M:%S},{t.microsecond // 1000:03} - {_LEVEL(r):5} "
            f"[QuorumPeer[myid={r.randrange(9)}]/0:0:0:0:0:0:0:0:2181:Leader@{r.randrange(999)}] - "
        ),
        (
            "Accepted socket connection from /{ip}:{port}",
            "Closed socket connection for client /{ip}:{port} which had sessionid {hex}",
            "Closed socket connection for client /{ip}:{port} (no session established for client)",
            "Client attempting to establish new session at /{ip}:{port}",
            "Client attempting to renew session {hex} at /{ip}:{port}",
            "Established session {hex} with negotiated timeout {int} for client /{ip}:{port}",
            "Expiring session {hex}, timeout of {int}ms exceeded",
            "Notification: {int} (n.leader), {hex} (n.zxid), LOOKING (n.state), {int} (n.sid)",
            "Notification: {int} (n.leader), {hex} (n.zxid), FOLLOWING (n.state), {int} (n.sid)",
            "Notification: {int} (n.leader), {hex} (n.zxid), LEADING (n.state), {int} (n.sid)",
            "Notification time out: {int}",
            "Send worker leaving thread",
            "Interrupting SendWorker",
            "Connection broken for id {int}, my id = {int}, error =",
            "Reading snapshot {path}",
            "Snapshotting: {hex} to {path}",
            "LOOKING",
            "FOLLOWING",
            "tickTime set to {int}",
            "minSessionTimeout set to {int}",
            "maxSessionTimeout set to {int}",
        ),
    ),
    Family(
        "jobs",
        _application,
        (
            "{attempt} TaskAttempt Transitioned from NEW to UNASSIGNED",
            "{attempt} TaskAttempt Transitioned from UNASSIGNED to ASSIGNED",
            "{attempt} TaskAttempt Transitioned from ASSIGNED to RUNNING",
            "{attempt} TaskAttempt Transitioned from RUNNING to SUCCEEDED",
            "Progress of TaskAttempt {attempt} is : {float}",
            "Added {attempt} to list of failed maps",
            "Launching {attempt}",
            "KILLING {attempt}",
            "Recalculating schedule, headroom=<memory:{int}, vCores:{int}>",
            "Reduce slow start threshold not met. completedMapsForReduceSlowstart {int}",
            "Retrying connect to server: {host}:{port}. Already tried {int} time(s)",
            "Address change detected. Old: {host}/{ip}:{port} New: {host}:{port}",
            "Failed to renew lease for [client_{id}] for {int} seconds. Will retry shortly ...",
            "Before Scheduling: PendingReds:{int} ScheduledMaps:{int} AssignedReds:{int}",
            "After Scheduling: PendingReds:{int} ScheduledMaps:{int} AssignedReds:{int}",
            "ERROR IN CONTACTING RM.",
            "Using mapred newApiCommitter.",
            "OutputCommitter set in config null",
        ),
    ),
    Family(
        "executor",
        lambda r, t: f"{t:%y/%m/%d %H:%M:%S} {_LEVEL(r)} storage.MemoryStore: ",
        (
            ("Block broadcast_{int} stored as values in memory (estimated size {float} KB, free "
            "{float} KB)"),
            ("Block broadcast_{int} stored as bytes in memory (estimated size {float} KB, free "
            "{float} KB)"),
            "Running task {float} in stage {float} (TID {int})",
            "Finished task {float} in stage {float} (TID {int}). {int} bytes result sent to driver",
            "Started reading broadcast variable {int}",
            "Reading broadcast variable {int} took {int} ms",
            "Found block rdd_{int} locally",
            "Partition rdd_{int} not found, computing it",
            "Changing view acls to: {user},{user}",
            "Changing modify acls to: {user},{user}",
            "mapred.tip.id is deprecated. Instead, use mapreduce.task.id",
            "mapred.job.id is deprecated. Instead, use mapreduce.job.id",
            "mapred.task.id is deprecated. Instead, use mapreduce.task.attempt.id",
            "Times: total = {int}, boot = {int}, init = {int}, finish = {int}",
            "Saved output of task '{attempt}' to hdfs://{host}:{port}{path}",
        ),
    ),
    Family(
        "cloud",
        lambda r, t: (
            f"nova-api.log.1.2017-05-16_13:53:08 {t:%Y-%m-%d %H:%M:%S}.{t.microsecond // 1000:03} "
            f"{_pid(r)} {_LEVEL(r)} nova.compute.manager [req-{r.randrange(10**9)} - - - - -] "
        ),
        (
            "[instance: {uuid}] VM Paused (Lifecycle Event)",
            "[instance: {uuid}] VM Resumed (Lifecycle Event)",
            "[instance: {uuid}] VM Started (Lifecycle Event)",
            "[instance: {uuid}] VM Stopped (Lifecycle Event)",
            "[instance: {uuid}] Took {float} seconds to build instance.",
            "[instance: {uuid}] Took {float} seconds to spawn the instance on the hypervisor.",
            "[instance: {uuid}] Terminating instance",
            "[instance: {uuid}] Creating image",
            "[instance: {uuid}] Total memory: {int} MB, used: {float} MB",
            "[instance: {uuid}] Total vcpu: {int} VCPU, used: {float} VCPU",
            "image {uuid} at ({path}): checking",
            "image {uuid} at ({path}): in use: on this node {int} local, {int} on other nodes",
            "Active base files: {paths}",
            "Removable base files: {paths}",
            '{ip} "GET {path} HTTP/1.1" status: {int} len: {int} time: {float}',
            '{ip} "POST {path} HTTP/1.1" status: {int} len: {int} time: {float}',
            '{ip} "DELETE {path} HTTP/1.1" status: {int} len: {int} time: {float}',
            "Unknown base file: {path}",
            "Successfully synced instances from host '{host}'.",
        ),
    ),
    Family(
        "linux",
        _syslog("kernel", "su(pam_unix)", "ftpd", "crond(pam_unix)", "kernel"),
        (
            "session opened for user {user} by (uid={int})",
            "session closed for user {user}",
            "authentication failure; logname= uid={int} euid={int} tty=NODEV rhost={host}",
            "check pass; user unknown",
            "connection from {ip} ({maybe}) at {day} {time} 2005",
            "CPU {int} irqstacks, hard={hex} soft={hex}",
            "BIOS-e820: {hex} - {hex} (usable)",
            "BIOS-e820: {hex} - {hex} (reserved)",
            "Initializing CPU#{int}",
            "usbcore: registered new driver usbfs",
            "usbcore: registered new driver hub",
            "klogd startup succeeded",
            "cupsd startup succeeded",
            "cupsd shutdown succeeded",
            "DMA zone: {int} pages, LIFO batch:{int}",
            "Normal zone: {int} pages, LIFO batch:{int}",
            "Out of memory: Killed process {int} ({user}).",
            "ANONYMOUS FTP LOGIN FROM {ip}, (anonymous)",
            "warning: can't get client address: Connection reset by peer",
            "eth0: link up, {int}Mbps, full-duplex",
            "eth0: link down",
        ),
    ),
    Family(
        "supercomputer",
        lambda r, t: (
            f"- {int(t.timestamp())} {t:%Y.%m.%d} R{r.randrange(64):02}-M1-N{r.randrange(9)}-C:J12 "
            f"{t:%Y-%m-%d-%H.%M.%S}.{t.microsecond:06} R{r.randrange(64):02}-M1-N0-C:J12-U11 RAS "
            f"KERNEL {r.choice(('INFO', 'FATAL'))} "
        ),
        (
            "instruction cache parity error corrected",
            "generating core.{int}",
            "{int} double-hummer alignment exceptions",
            "{int} floating point alignment exceptions",
            "CE sym {int}, at {hex}, mask {hex}",
            "data TLB error interrupt",
            "data storage interrupt",
            "{int} torus receiver x+ input pipe error(s) (dcr {hex}) detected and corrected",
            "{int} torus receiver y+ input pipe error(s) (dcr {hex}) detected and corrected",
            "{int} torus receiver z- input pipe error(s) (dcr {hex}) detected and corrected",
            "program interrupt: illegal instruction......{int}",
            "program interrupt: privileged instruction...{int}",
            "program interrupt: trap instruction.........{int}",
            "machine check enable..............{int}",
            "total of {int} ddr error(s) detected and corrected",
            "total of {int} ddr error(s) detected and corrected over {int} seconds",
            "iar {hex} dear {hex}",
            "rts: kernel terminated for reason {int}",
        ),
    ),
    Family(
        "nodes",
        lambda r, t: (
            f"{r.randrange(10**6)} node-{r.randrange(256)} unix.hw state_change "
            f"{int(t.timestamp())} 1 "
        ),
        (
            *STATES,
            "Link error",
            "Link ok",
            "Link in reset",
            "not responding",
            "Component State Change: Component {id} is in the unavailable state (HWID={int})",
            "Fan speeds ( {int} {int} {int} {int} )",
            "NIFF: node node-{int} detected a failed network connection on network {ip}",
            "NIFF: node node-{int} has detected an available network connection on network {ip}",
            "Targeting domains:node-D{int} and nodes:node-[{int}-{int}] child of command {int}",
            "boot (command {int})",
            "halt (command {int})",
            "wait (command {int})",
            "Temperature ({int}C) exceeds warning threshold",
            "ServerFileSystem domain storage{int} is full",
        ),
    ),
    Family(
        "phone",
        lambda r, t: (
            f"{t:%m-%d %H:%M:%S}.{t.microsecond // 1000:03}  {_pid(r)}  {_pid(r)} "
            f"{r.choice('VDIWE')} {r.choice(('WindowManager', 'PowerManagerService'))}: "
        ),
        (
            "acquire lock={int}, flags={hex}, tag=\"View Lock\", name=com.android.ui, ws=null",
            "release:lock={int}, flg={hex}, tag=\"View Lock\", name=com.android.ui\", ws=null",
            "ready=true,policy=3,wakefulness=1,wksummary={hex},uasummary={hex}",
            "setLightsOn(true)",
            "setLightsOn(false)",
            "animateCollapsePanels:flags={int}, force=false, delayed=false",
            "cancelNotification,index:{int}",
            "visible is system.time.showampm",
            "visible is system.charge.show",
            "getRunningAppProcesses: caller {int} does not hold REAL_GET_TASKS; limiting output",
            "Skipping AppWindowToken{{{id} token=Token{{{id} ActivityRecord{{{id} u0}}}}}}",
            "mVisiblity.getValue is false",
            "interceptKeyTq keycode={int} interactive=true keyguardActive=false policyFlags={hex}",
        ),
    ),
    Family(
        "steps",
        lambda r, t: (
            f"{t:%Y%m%d-%H:%M:%S}:{t.microsecond // 1000}|"
            f"{r.choice(('Step_LSC', 'Step_SPUtils', 'Step_ExtSDM'))}|3000{r.randrange(9999):04}|"
        ),
        (
            "onStandStepChanged {int}",
            "onExtend:{int} {int} {int} {int}",
            "getTodayTotalDetailSteps = {int}##{int}##{int}##{int}##{int}",
            "setTodayTotalDetailSteps={int}##{int}##{int}##{int}##{int}",
            "calculateCaloriesWithCache totalCalories={int}",
            "calculateAltitudeWithCache totalAltitude={int}",
            "REPORT : {int} {int} {int} {int}",
            "onReceive action: android.intent.action.SCREEN_ON",
            "onReceive action: android.intent.action.SCREEN_OFF",
            "processHandleBroadcastAction action:android.intent.action.TIME_TICK",
            "flush sensor data",
            "screen status unknown,think screen on",
            "saveHealthDetailData() saveOneDetailData fail hiHealthData = {int},type = {int}",
            "upLoadOneMinuteDataToEngine time={int},{int},{int},{int},{int}",
            "isScreenOn true",
        ),
    ),
    Family(
        "desktop",
        lambda r, t: (
            f"{t:%b} {t.day:2} {t:%H:%M:%S} mac-{r.randrange(99)} "
            f"{r.choice(('kernel[0]', 'cts[258]', 'sandboxd[129] ([31211])'))}: "
        ),
        (
            "{app}: told to run this job, but the start time is not for {int} seconds. Ignoring.",
            "{app}({int}) deny network-outbound {path}",
            "Frequent transitions for interface awdl0 ({ipv6})",
            "ARPT: {float}: wl0: MDNS: IPV6 Addr: {ipv6}",
            "ARPT: {float}: wl0: Roamed or switched channel, reason #{int}, bssid {mac}",
            "ARPT: {float}: AirPort::syncPowerState: WWEN[enabled]",
            "ARPT: {float}: AirPort::platformWoWEnable: WWEN[disable]",
            "ARPT: {float}: AirPort::platformWoWEnable: WWEN[enable]",
            'acquire lock={int}, flags={hex}, tag="{tag}", name={app}, uid={int}',
            'release lock={int}, flags={hex}, tag="{tag}", name={app}, uid={int}',
            "Thermal pressure state: {int} Memory pressure state: {int}",
            'setting hostname to "{host}"',
            "AirPort: Link Down on awdl0. Reason {int} (Unspecified).",
            "AppleCamIn::systemWakeCall - messageType = {hex}",
            "AppleCamIn::wakeEventHandlerThread",
            "IOThunderboltSwitch<{int}>({hex})::listenerCallback - route = {hex} unplug = {int}",
            "network is not reachable, netbiosd is shutting down",
        ),
    ),
    Family(
        "proxy",
        lambda r, t: (
            f"[{t:%m.%d %H:%M:%S}] {r.choice(('chrome.exe', 'git.exe *64', 'mail.exe'))} - "
        ),
        (
            "{host}:{port} open through proxy {host}:{port} HTTPS",
            "{host}:{port} open through proxy {host}:{port} SOCKS5",
            "{host}:{port} close, {size} sent, {size} received, lifetime {duration}",
            ("{host}:{port} error : Could not connect to proxy {host}:{port} - connection attempt "
            "failed with error {int}"),
            ("{host}:{port} error : Could not connect through proxy {host}:{port} - Proxy closed "
            "connection unexpectedly."),
            "{host}:{port} error : A connection request was canceled before the completion.",
        ),
    ),
    Family(
        "web server",
        lambda r, t: f"[{t:%a %b %d %H:%M:%S %Y}] [{r.choice(('error', 'notice'))}] ",
        (
            "jk2_init() Found child {int} in scoreboard slot {int}",
            "workerEnv.init() ok {path}",
            "mod_jk child workerEnv in error state {int}",
            "[client {ip}] Directory index forbidden by rule: {path}",
            "[client {ip}] File does not exist: {path}",
            "jk2_init() Can't find child {int} in scoreboard",
            "mod_jk child init {int} {int}",
            "caught SIGTERM, shutting down",
        ),
    ),
    Family(
        "kubernetes",
        lambda r, t: (
            f"{r.choice('IWE')}{t:%m%d %H:%M:%S}.{t.microsecond:06}    {_pid(r)} "
            f"reconciler.go:{r.randrange(999)}] "
        ),
        (
            'MountVolume.SetUp succeeded for volume "{id}" (UniqueName: "{path}") pod "{host}"',
            'Started container "{user}" in pod "{uuid}"',
            'Failed to pull image "{url}": rpc error: code = Unknown',
            "Successfully assigned default/{host}-{id} to {host}",
            "Liveness probe failed: HTTP probe failed with statuscode: {int}",
            "Readiness probe failed: HTTP probe failed with statuscode: {int}",
            "Node {host} status is now: NodeReady",
            "Node {host} status is now: NodeNotReady",
            "eviction manager: attempting to reclaim memory",
            "eviction manager: attempting to reclaim ephemeral-storage",
        ),
    ),
    Family(
        "database",
        lambda r, t: (
            f"{t:%Y-%m-%d %H:%M:%S}.{t.microsecond // 1000:03} UTC [{_pid(r)}] "
            f"{r.choice(('LOG', 'ERROR', 'WARNING'))}:  "
        ),
        (
            "connection received: host={host} port={port}",
            "connection authorized: user={user} database={user}",
            "disconnection: session time: 0:{time} user={user} database={user} host={host}",
            "checkpoint starting: time",
            "checkpoint starting: wal",
            "checkpoint complete: wrote {int} buffers ({float}%); sync={float} s, total={float} s",
            'relation "{user}" does not exist at character {int}',
            'duplicate key value violates unique constraint "{user}_pkey"',
            "duration: {float} ms  statement: SELECT * FROM orders WHERE id = {int}",
            "deadlock detected",
            "canceling statement due to user request",
            "could not receive data from client: Connection reset by peer",
        ),
    ),
)  # fmt: skip


class Labelled(NamedTuple):
    line: str
    label: str


def generated(family: Family, lines: int, seed: int = 7) -> list[Labelled]:
    """So many lines, with the template of each; every template occurs, a few of them most often."""
    r = random.Random(f"{family.name} {seed}")
    values = _values(r)
    moment = datetime(2026, 3, 14, 9, 26, 53, tzinfo=UTC)
    order = r.sample(family.templates, len(family.templates))
    weights = [1 / (rank + 1) for rank in range(len(order))]
    chosen = [*order, *r.choices(order, weights, k=max(0, lines - len(order)))]
    r.shuffle(chosen)
    made = []
    for template in chosen:
        moment += timedelta(seconds=r.expovariate(1))
        text = re.sub(r"\{(\w+)\}", lambda found: values[found[1]](), template)
        text = text.replace("{{", "{").replace("}}", "}")
        made.append(Labelled(family.head(r, moment) + text, template))
    return made


class _Group:
    def __init__(self) -> None:
        self.number = id(self)
        self.absorbed: list[_Group] = []

    def absorb(self, other: _Group) -> None:
        self.absorbed.append(other)

    def members(self) -> Iterable[int]:
        yield id(self)
        for one in self.absorbed:
            yield from one.members()


def grouped(lines: Sequence[str]) -> list[str]:
    """The template that the analyser finds for each line."""
    layout = Layout(lines[:1000])
    miner: Miner[_Group] = Miner(_Group)
    tallies = []
    for line in lines:
        piece = layout.split(line)
        tallies.append(miner.tally(piece.message, piece.plain))
    template = {number: text for text, group in miner.close() for number in group.members()}
    return [template[id(tally)] for tally in tallies]


def accuracy(found: Sequence[str], labels: Sequence[str]) -> float:
    """Grouping accuracy: the share of lines whose group is exactly the group they belong to."""
    by_found: dict[str, set[int]] = defaultdict(set)
    by_label: dict[str, set[int]] = defaultdict(set)
    for number, (one, label) in enumerate(zip(found, labels, strict=True)):
        by_found[one].add(number)
        by_label[label].add(number)
    right = {frozenset(group) for group in by_label.values()}
    return sum(len(group) for group in by_found.values() if group in right) / max(1, len(labels))


def main(folder: Path) -> None:
    """The accuracy for every labelled sample in a folder."""
    for labels in sorted(folder.rglob("*_structured.csv")):
        lines = labels.with_name(labels.name.removesuffix("_structured.csv")).read_text("utf-8")
        with labels.open(encoding="utf-8", newline="") as file:
            events = [row["EventId"] for row in csv.DictReader(file)]
        found = grouped(lines.splitlines())
        print(f"{labels.name:45} {accuracy(found, events):.4f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
