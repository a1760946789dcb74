# SPDX-License-Identifier: MIT OR Apache-2.0
"""A page in Debian's Chromium, without a screen and without a network."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.remote.webelement import WebElement

ENTER, ESCAPE, SPACE, TAB = "\ue007", "\ue00c", " ", "\ue004"
_LIMIT_S = 240
# A drawing is one image to whoever cannot see it: what it is made of is not looked at.
_AXE = """
const done = arguments[arguments.length - 1];
axe.run({include: [[arguments[0]]], exclude: [["svg > *"]]}, {resultTypes: ["violations"]}).then(done);
"""


class Page:
    """A file that is opened in the browser."""

    def __init__(self, driver: webdriver.Chrome, file: Path) -> None:
        self.driver, self.url = driver, file.as_uri()

    def open(self) -> None:
        """Anew, as nobody has touched it."""
        self.driver.get("about:blank")
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.prefer("light")
        # The browser's own first page has asked for things, too.
        self.requested()
        self.complaints()
        self.driver.get(self.url)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements("css selector", selector)

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element("css selector", selector)

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

    @property
    def focused(self) -> WebElement:
        return self.driver.switch_to.active_element

    def focus(self, element: WebElement) -> None:
        self.run("arguments[0].focus()", element)

    def narrow(self, width: int, height: int = 800) -> None:
        """As on a telephone; a window cannot be that narrow."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, colours: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": colours}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def requested(self) -> list[str]:
        """Every address that was asked for since the last time."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """What the console got since the last time."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def violations(self, selector: str = "html") -> list[str]:
        """What axe-core holds against this part of the page as it is now."""
        self.run((resources.files("axe_playwright_python") / "axe.min.js").read_text())
        found = self.driver.execute_async_script(_AXE, selector)["violations"]
        return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]


@contextlib.contextmanager
def browser(file: Path, profile: Path) -> Iterator[Page]:
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1200,900",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
        "--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=127.0.0.1:9", f"--user-data-dir={profile}",
    ):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    service = webdriver.ChromeService("/usr/bin/chromedriver")
    driver = webdriver.Chrome(options, service)
    try:
        driver.set_script_timeout(_LIMIT_S)
        driver.execute_cdp_cmd("Network.enable", {})
        offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
        yield Page(driver, file)
    finally:
        driver.quit()
