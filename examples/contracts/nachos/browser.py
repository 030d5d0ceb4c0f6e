"""The browser's parameters, as the contract spells them, checked as every call's are."""

from toolpost.bridges.nachos import BrowserTool, ToolConfig, tools

browser = BrowserTool()
assert browser.parameters["required"] == ["url", "action"]
assert set(browser.parameters["properties"]) == {"url", "action", "selector"}
assert browser.parameters["properties"]["action"]["enum"] == ["navigate", "screenshot", "extract"]

good = {"url": "https://example.org/", "action": "extract", "selector": "h1"}
wrong = {"url": "https://example.org/", "action": "dance"}
assert browser.validate(good).valid
told = browser.validate(wrong)
assert not told.valid
print(told.errors)

(item,) = tools(browser, config=ToolConfig({"egress": ["example.org:443"]}))
print(item.spec.name, "is a tool like any other, of tier", item.spec.tier)
