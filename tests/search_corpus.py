"""Tools of many makers, described as such tools are, and what people ask for when they want one."""

from __future__ import annotations

from typing import Any, Final

from toolpost.spec import ToolSpec

_MADE_UP: Final = """
send_email|Send a message to one or more recipients.|to, subject, body, attachments|mail
gmail.search_threads|Search the threads of a mailbox with a query.|query, max_results|mail
gmail.createDraft|Create a draft that is not sent yet.|to, subject, body|mail
slack_post_message|Post a message to a channel.|channel, text, thread_ts|chat
slack_list_channels|List all channels of the workspace.|cursor, limit|chat
calendar.create_event|Put an appointment into the calendar.|title, start, end, attendees|calendar
calendar.free_slots|Find times at which everybody is free to meet.|attendees, day, minutes|calendar
get_weather_forecast|Forecast temperature and rain of the coming days.|city, days, units|weather
convert_currency|Convert an amount between currencies at today's rate.|amount, source, target|money
stripe.createRefund|Give a customer the money of a charge back.|charge, amount, reason|payments
stripe.list_invoices|List the invoices of a customer.|customer, status|payments
create_issue|Open a ticket in the tracker.|project, title, description, labels|tracker
jira_transition_issue|Move a ticket to another state of its workflow.|issue_key, transition|tracker
github_create_pull_request|Propose changes of a branch to be merged.|repo, head, base, title|code
github_search_code|Search source text across repositories.|query, language|code
git_commit|Record staged changes with a message.|message, author|code
git_diff|Show what has changed between two revisions.|base, head, path|code
run_sql_query|Run a statement against the database and return rows.|sql, parameters|database
describe_table|Tell the columns and types of a database table.|table|database
export_csv|Write rows into a comma separated file.|rows, path|database
resize_image|Change width and height of a picture.|path, width, height|media
remove_background|Cut out the subject of a photo and make the rest transparent.|path|media
transcribe_audio|Turn speech of a recording into text.|path, language|media
text_to_speech|Read a text aloud and save it as sound.|text, voice|media
generate_image|Paint a new picture from words.|prompt, size, style|media
extract_video_frames|Save single frames of a film as pictures.|path, every|media
ocr_document|Recognise the text on a scanned page.|path, language|documents
merge_pdf|Join several PDF documents into one.|paths, output|documents
fill_pdf_form|Enter values into the fields of a PDF.|path, fields|documents
summarize_text|Shorten a long text to its main points.|text, sentences|language
translate_text|Translate a text into another language.|text, target_language|language
detect_language|Tell in which language a text is written.|text|language
sentiment_analysis|Judge whether a text is positive or negative.|text|language
spell_check|Find misspelt words and propose better ones.|text, language|language
geocode_address|Find latitude and longitude of an address.|address|maps
directions|Plan a route from one place to another.|origin, destination, mode|maps
nearby_places|List restaurants, shops and sights around a point.|lat, lon, radius|maps
book_flight|Reserve a seat on an aeroplane.|origin, destination, date, passenger|travel
search_hotels|Find rooms to stay in, with prices.|city, checkin, checkout|travel
stock_quote|Tell the latest price of a share.|symbol|money
k8s_list_pods|List the pods of a namespace with their status.|namespace, selector|ops
k8s_rollout_restart|Restart all pods of a deployment one after another.|deployment, namespace|ops
terraform_plan|Show which infrastructure would be changed.|directory|ops
aws_s3_upload|Put an object into a bucket.|bucket, key, path|cloud
aws_s3_list_objects|List what is in a bucket.|bucket, prefix|cloud
dns_lookup|Resolve a host name to its addresses.|host, record_type|network
ping_host|Measure whether a machine answers and how fast.|host, count|network
check_certificate|Tell when the TLS certificate of a site expires.|host, port|network
rotate_secret|Replace a password or a token by a new one.|name|security
scan_vulnerabilities|Look for known weaknesses in the packages of a project.|path, severity|security
set_reminder|Tell you something at a later time.|text, when|personal
add_todo|Put a task onto your list.|text, due|personal
play_music|Play a song or an album.|query, device|home
turnOnLights|Switch the lamps of a room on or off.|room, brightness|home
set_thermostat|Set the temperature of the heating.|degrees, room|home
read_rss_feed|Get the newest entries of a feed.|url, limit|news
create_invoice|Write a bill for a customer.|customer, items, due|money
crm.find_contact|Look up a person or a company among your customers.|name, email|sales
crm.log_call|Note down a phone conversation with a customer.|contact, notes|sales
hash_text|Compute a checksum of a text.|text, algorithm|other
generate_uuid|Make a new random identifier.|version|other
"""

ASKED: Final = {
    "send a mail": "send_email",
    "email a colleague": "send_email",
    "post to slack": "slack_post_message",
    "schedule a meeting": "calendar.create_event",
    "when is everyone available": "calendar.free_slots",
    "will it rain tomorrow": "get_weather_forecast",
    "exchange dollars for euros": "convert_currency",
    "refund a payment": "stripe.createRefund",
    "create refund": "stripe.createRefund",
    "open a bug report": "create_issue",
    "change the status of a jira ticket": "jira_transition_issue",
    "make a pull request": "github_create_pull_request",
    "what changed since the last commit": "git_diff",
    "query the database": "run_sql_query",
    "columns of a table": "describe_table",
    "scale down a photo": "resize_image",
    "speech to text": "transcribe_audio",
    "draw a picture": "generate_image",
    "combine pdf files": "merge_pdf",
    "read text from a scan": "ocr_document",
    "translate to german": "translate_text",
    "summarise an article": "summarize_text",
    "coordinates of an address": "geocode_address",
    "the way to the airport": "directions",
    "restaurants nearby": "nearby_places",
    "share price": "stock_quote",
    "restart a deployment": "k8s_rollout_restart",
    "upload a file to s3": "aws_s3_upload",
    "ip address of a domain": "dns_lookup",
    "is the certificate still valid": "check_certificate",
    "remind me later": "set_reminder",
    "turn off the lights": "turnOnLights",
    "calculate a sum": "calculator",
    "math": "calculator",
    "what time is it": "time",
    "search the internet": "web_search",
    "look something up in an encyclopedia": "wikipedia",
    "delete a file": "delete_file",
    "list files in a folder": "list_directory",
    "grep for a pattern in files": "search_files",
    "take a screenshot of a web page": "browser_screenshot",
    "click a button on a site": "browser_click",
    "find errors in logs": "analyze_logs",
    "run a shell command": "system_command",
    "get the text of a web page": "web_scraper",
    "question about our own documents": "search_knowledge",
    "make an http request": "http_request",
}
"""What is asked → the tool that is wanted."""

MISSPELT: Final = {
    "calcualtor": "calculator",
    "wether forcast": "get_weather_forecast",
    "tranlsate": "translate_text",
    "sreenshot": "browser_screenshot",
    "wikipeda": "wikipedia",
    "invioce": "create_invoice",
    "calender": "calendar.create_event",
    "kuberntes pod staus": "k8s_list_pods",
    "trancribe": "transcribe_audio",
    "mial": "send_email",
}


def made_up() -> list[ToolSpec]:
    return [_spec(line) for line in _MADE_UP.strip().splitlines()]


def _spec(line: str) -> ToolSpec:
    name, description, names, category = map(str.strip, line.split("|"))
    properties: dict[str, Any] = {one: {"type": "string"} for one in names.split(", ")}
    return ToolSpec(
        name=name,
        description=description,
        category=category,
        input_schema={"type": "object", "properties": properties},
        binding={"module": "m", "function": "f"},
    )
