"""Reports in a real browser: how long they take to open beside another page, and whether they are whole.

    python benches/report_pages.py --axe axe.min.js --beside page.html --pictures DIR REPORT.html ...

Run it with a Python that has playwright, and with Debian's Chromium; axe.min.js comes from the package
axe-core of npm. Every page is opened in turns with the others. For each report the script counts requests,
compares the picture with and without scripts, lets axe look for violations of accessibility rules in light
and dark, and saves pictures: light, dark, narrow (390 px) and on paper.
"""

import argparse
import pathlib
import statistics
import time

from playwright.sync_api import sync_playwright

SIZES = {"light": (1280, 900), "dark": (1280, 900), "narrow": (390, 844)}


def opened(browser, path, **options):
    """A page with the file in it, what it requested and what it said."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
    page = context.new_page()
    requests, said = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(path.resolve().as_uri(), wait_until="load")
    return page, requests, said


def seconds_to_open(browser, path):
    """From the request to the second frame after everything is loaded."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    began = time.perf_counter()
    page.goto(path.resolve().as_uri(), wait_until="load")
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    seconds = time.perf_counter() - began
    context.close()
    return seconds


def violations(browser, path, axe, scheme):
    """Rules that the page breaks."""
    page, _, _ = opened(browser, path, bypass_csp=True, color_scheme=scheme)
    page.add_script_tag(path=str(axe))
    found = page.evaluate(
        "async () => (await axe.run(document)).violations.map(v => [v.id, v.nodes.length, v.help])"
    )
    page.context.close()
    return found


def pictures(browser, path, folder):
    """The page light, dark, narrow and on paper."""
    for name, (width, height) in SIZES.items():
        page, _, _ = opened(browser, path, color_scheme="dark" if name == "dark" else "light")
        page.set_viewport_size({"width": width, "height": height})
        page.screenshot(path=folder / f"{path.stem}-{name}.png", full_page=True)
        page.context.close()
    page, _, _ = opened(browser, path)
    page.pdf(path=folder / f"{path.stem}-print.pdf", format="A4", print_background=True)
    page.context.close()


def same_without_script(browser, path):
    """Whether the first picture is the same with and without scripts."""
    shots = []
    for scripts in (True, False):
        page, _, _ = opened(browser, path, java_script_enabled=scripts)
        shots.append(page.screenshot(full_page=True))
        page.context.close()
    return shots[0] == shots[1]


def main():
    """Open, look and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reports", nargs="+", type=pathlib.Path)
    parser.add_argument("--axe", type=pathlib.Path)
    parser.add_argument("--beside", type=pathlib.Path)
    parser.add_argument("--pictures", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--browser", default="/usr/bin/chromium")
    options = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.browser, args=["--no-sandbox"])
        pages = [*([options.beside] if options.beside else []), *options.reports]
        times = {page: [] for page in pages}
        for _ in range(options.rounds):
            for page in pages:
                times[page].append(seconds_to_open(browser, page))
        beside = statistics.median(times[options.beside]) if options.beside else None
        for report in options.reports:
            median = statistics.median(times[report])
            page, requests, said = opened(browser, report)
            page.context.close()
            facts = [f"{report.stat().st_size / 1000:.0f} KB", f"{len(requests) - 1} requests"]
            facts.append(
                f"opened in {median / beside:.2f} of the other page" if beside else f"{median:.3f} s"
            )
            facts.append(
                "same without script" if same_without_script(browser, report) else "OTHER WITHOUT SCRIPT"
            )
            facts.extend(f"said {text!r}" for text in said)
            if options.axe:
                for scheme in ("light", "dark"):
                    found = violations(browser, report, options.axe, scheme)
                    facts.append(f"axe {scheme}: {found or 'no violation'}")
            print(f"{report.name}: {', '.join(facts)}", flush=True)
            if options.pictures:
                options.pictures.mkdir(exist_ok=True)
                pictures(browser, report, options.pictures)
        browser.close()


if __name__ == "__main__":
    main()
