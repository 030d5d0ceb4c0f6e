"""The system's Chromium, and how it is started. None is ever downloaded.

Above: ``running.py``. Below: the file system. What is on the path is often a script, which reads
settings that no sandbox shows: the program behind it is what is wanted.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from toolpost.errors import Unavailable

PROXY: Final = "127.0.0.1:3128"
"""Where a sandbox has its way out."""
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_BEHIND: Final = (
    "/usr/lib/chromium/chromium",
    "/usr/lib64/chromium-browser/chromium-browser",
    "/usr/lib/chromium-browser/chromium-browser",
    "/opt/google/chrome/chrome",
)
_WITHOUT: Final = (
    # a window's own parts, which nobody sees here: of each session more than half of its start
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup"),
    # Playwright's, which are not heard where somebody else says this, too
    *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades"),
    *("HttpsFirstBalancedModeAutoEnable", "LensOverlay", "MediaRouter", "PaintHolding"),
    *("ThirdPartyStoragePartitioning", "AvoidCorsURLLoaderRestartOnRedirect", "OptimizationHints"),
    *("NetworkTimeServiceQuerying", "AimEnabled", "PreconnectToSearch"),
)
SWITCHES: Final = (
    f"--disable-features={','.join(_WITHOUT)}",
    "--disable-gpu",
    "--disable-gpu-process-crash-limit",  # else the sixth time that one ends is the end of all
    "--disable-quic",
    "--disable-domain-reliability",
    "--disable-client-side-phishing-detection",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    f"--proxy-server=http://{PROXY}",
    "--proxy-bypass-list=<-loopback>",  # this machine's addresses are not reached directly either
    "--no-pings",
    "--mute-audio",
)
"""Beside those of Playwright, which has none of Chromium's services call home. ``--no-sandbox`` is
among them: Chromium's own sandbox cannot be had inside of ours.
"""


def chromium(configured: str | None) -> str:
    """The path of the program; else ``Unavailable``, with how to get one."""
    if configured is not None:
        if Path(configured).is_file():
            return configured
        raise _missing(f"there is no program {configured}")
    for name in _NAMES:
        found = shutil.which(name)
        if found is not None and _is_program(found):
            return str(Path(found).resolve())
    for path in _BEHIND:
        if _is_program(path):
            return path
    raise _missing("there is no Chromium on this machine")


def _is_program(path: str) -> bool:
    try:
        with Path(path).open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def _missing(why: str) -> Unavailable:
    return Unavailable(
        f"The browser cannot be used: {why}. Whoever runs this can install it (Debian: apt-get "
        "install chromium), or name it as program in [sources.browser].",
        retryable=False,
        remedy="other_tool",
        effects="none",
    )
