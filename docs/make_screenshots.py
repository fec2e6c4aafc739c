"""Screenshots of the page of a running server, at the width of a desk and of a phone.

tableless serve runs/ml --items ml-1m/movies.dat &
python docs/make_screenshots.py http://127.0.0.1:8000
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

SIZES = {"desktop": (1280, 860), "phone": (390, 844)}
VIEW = "/#user=42&item=260"


def main(address: str) -> None:
    """Write page-desktop.png and page-phone.png beside this file."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (width, height) in SIZES.items():
            context = browser.new_context(viewport={"width": width, "height": height}, has_touch=name == "phone")
            page = context.new_page()
            page.goto(address.rstrip("/") + VIEW)
            page.wait_for_load_state("networkidle")
            page.screenshot(path=Path(__file__).parent / f"page-{name}.png")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
