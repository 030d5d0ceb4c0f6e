"""The table of providers: how the keys and tokens begin that each of them documents, and the names
beside which a random value is one of theirs.

``secret.py`` makes rules of it. A prefix that only one provider's keys have is enough to know one;
what looks like any random text counts only where the provider's name stands before it.
"""

from __future__ import annotations

from typing import Final

_ALNUM: Final = "A-Za-z0-9"
_URL64: Final = "A-Za-z0-9_-"
_B64: Final = "A-Za-z0-9+/=_-"
_HEX: Final = "0-9a-fA-F"

# (kind, what it begins with, of what it goes on, at least how long)
PREFIXED: Final = (
    ("toolpost_key", r"tpk_[0-9a-f]{12}_", "0-9a-f", 64),
    ("anthropic_key", r"sk-ant-", _URL64, 24),
    ("openai_key", r"sk-(?:proj|svcacct|admin)-", _URL64, 20),
    ("openai_key", r"sk-", _URL64, 20),
    ("github_token", r"gh[opsur]_", _ALNUM, 36),
    ("github_token", r"github_pat_", "A-Za-z0-9_", 22),
    (
        "gitlab_token",
        r"gl(?:pat|dt|rt|rtr|ptt|cbt|soat|ft|imt|agent|oas|ffct)-",
        "A-Za-z0-9_.-",
        20,
    ),
    ("slack_token", r"xox[abceoprs](?:\.xox[abp])?-", "A-Za-z0-9-", 10),
    ("slack_token", r"xapp-[0-9]-", "A-Za-z0-9-", 10),
    ("stripe_key", r"[rs]k_(?:live|test|prod)_", _ALNUM, 10),
    ("stripe_key", r"whsec_", "A-Za-z0-9+/=", 24),
    ("gcp_key", r"AIza", _URL64, 35),
    ("gcp_token", r"ya29\.", "A-Za-z0-9_.-", 20),
    ("gcp_secret", r"GOCSPX-", _URL64, 24),
    ("huggingface_token", r"(?:hf_|api_org_)", _ALNUM, 30),
    ("sendgrid_key", r"SG\.[A-Za-z0-9_-]{16,32}\.", _URL64, 30),
    ("twilio_key", r"SK", "0-9a-f", 32),
    ("npm_token", r"npm_", _ALNUM, 36),
    ("pypi_token", r"pypi-", _URL64, 50),
    ("digitalocean_token", r"do[oprt]_v1_", _HEX, 64),
    ("shopify_token", r"shp(?:at|ca|pa|ss)_", _HEX, 32),
    ("mailgun_key", r"key-", "0-9a-f", 32),
    ("databricks_token", r"dapi", "0-9a-f", 32),
    ("vault_token", r"hv[bsr]\.", _URL64, 24),
    ("terraform_token", r"[A-Za-z0-9]{14}\.atlasv1\.", _URL64, 60),
    ("docker_token", r"dckr_(?:pat|oat)_", _URL64, 20),
    ("linear_key", r"lin_(?:api|oauth)_", _ALNUM, 32),
    ("notion_token", r"ntn_", _ALNUM, 40),
    ("grafana_token", r"gl(?:sa|c)_", "A-Za-z0-9_=+/", 32),
    ("newrelic_key", r"NR(?:AK|AL|BR|II|IQ|JS|RA)-", _URL64, 19),
    ("groq_key", r"gsk_", _ALNUM, 40),
    ("replicate_token", r"r8_", _ALNUM, 37),
    ("xai_key", r"xai-", _ALNUM, 60),
    ("perplexity_key", r"pplx-", _ALNUM, 40),
    ("tavily_key", r"tvly-", _URL64, 20),
    ("age_key", r"AGE-SECRET-KEY-1", "0-9A-Z", 50),
    ("figma_token", r"fig[dour]_", _URL64, 30),
    ("postman_key", r"PMAK-", "0-9a-f-", 40),
    ("rubygems_key", r"rubygems_", "0-9a-f", 48),
    ("sentry_token", r"sntry[su]_", "A-Za-z0-9_=+/", 40),
    ("heroku_key", r"HRKU-", _URL64, 36),
    ("supabase_key", r"sb(?:p|_secret)_", _URL64, 30),
    ("planetscale_token", r"pscale_(?:tkn|pw|oauth)_", "A-Za-z0-9_.=-", 32),
    ("doppler_token", r"dp\.(?:pt|st|ct|sa|scim|audit)\.", "A-Za-z0-9_.-", 40),
    ("atlassian_token", r"AT(?:A|C|S)TT3", "A-Za-z0-9_=-", 60),
    ("square_token", r"sq0(?:atp|csp|idp)-", _URL64, 22),
    ("square_token", r"EAAA", _URL64, 60),
    ("pulumi_token", r"pul-", "0-9a-f", 40),
    ("telegram_token", r"(?:bot)?[0-9]{6,12}:A", _URL64, 33),
    ("adobe_secret", r"p8e-", _ALNUM, 32),
    ("airtable_token", r"pat[A-Za-z0-9]{14}\.", "0-9a-f", 64),
    ("alibaba_key", r"LTAI", _ALNUM, 12),
    ("amazon_mws_token", r"amzn\.mws\.", "0-9a-f-", 36),
    ("artifactory_key", r"AKCp", _ALNUM, 60),
    ("artifactory_token", r"cmVmdGtu", _ALNUM, 50),
    ("asana_token", r"[0-9]/[0-9]{16}:", "0-9a-f", 32),
    (
        "authress_key",
        r"(?:sc|ext|scauth|authress)_[A-Za-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc[_-][a-z0-9-]{10,32}\.",
        _B64,
        30,
    ),
    ("bedrock_key", r"ABSK", "A-Za-z0-9+/=", 100),
    ("bedrock_key", r"bedrock-api-key-", "A-Za-z0-9+/=", 40),
    ("bitbucket_token", r"ATBB", _ALNUM, 24),
    ("braintree_token", r"access_token\$(?:production|sandbox)\$", "a-z0-9$", 40),
    ("brevo_key", r"x(?:key|smtp)sib-[0-9a-f]{64}-", _ALNUM, 16),
    ("buildkite_token", r"bk(?:ua|at|ct|pi)_", _ALNUM, 32),
    ("cerebras_key", r"csk-", _ALNUM, 32),
    ("clickhouse_key", r"4b1d", _ALNUM, 38),
    ("clojars_token", r"CLOJARS_", _ALNUM, 60),
    ("cloudflare_key", r"v1\.0-[0-9a-f]{24}-", "0-9a-f", 100),
    ("contentful_token", r"CFPAT-", _URL64, 40),
    ("crates_token", r"cio", _ALNUM, 32),
    ("definednetworking_token", r"dnkey-", "a-z0-9=_-", 60),
    ("discord_token", r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.", _URL64, 27),
    ("dropbox_token", r"sl\.", "A-Za-z0-9_.-", 100),
    ("duffel_token", r"duffel_(?:live|test)_", "A-Za-z0-9_=-", 40),
    ("dynatrace_token", r"dt0[a-z][0-9]{2}\.[A-Z0-9]{24}\.", "A-Z0-9", 60),
    ("easypost_key", r"EZ[AT]K", _ALNUM, 54),
    ("endor_key", r"endr\+", _URL64, 16),
    ("facebook_secret", r"[0-9]{15,16}(?:\||%7[Cc])", _URL64, 27),
    ("facebook_token", r"EAA", _ALNUM, 80),
    ("flutterwave_key", r"FLW(?:PUB|SEC)K_?(?:TEST)?-?", "a-h0-9", 12),
    ("fly_token", r"fo1_", _URL64, 43),
    ("fly_token", r"fm[12][ar]?_", _B64, 100),
    ("frameio_token", r"fio-u-", "A-Za-z0-9=_-", 60),
    ("gitlab_token", r"GR1348941", _URL64, 20),
    ("google_refresh_token", r"1//0", _URL64, 38),
    ("grafana_key", r"eyJrIjoi", "A-Za-z0-9+/=", 60),
    ("harness_token", r"[ps]at\.[A-Za-z0-9_-]{22}\.[0-9a-f]{24}\.", _ALNUM, 20),
    ("hubspot_token", r"pat-(?:na|eu|ap)[0-9]-", "0-9a-fA-F-", 36),
    ("infracost_key", r"ico-", _ALNUM, 32),
    ("intra42_secret", r"s-s4t2(?:ud|af)-", "0-9a-f", 64),
    ("jina_key", r"jina_", _ALNUM, 50),
    ("langsmith_key", r"lsv2_(?:pt|sk)_", "a-z0-9_", 32),
    ("launchdarkly_key", r"(?:api|sdk)-[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}", "0-9a-f", 12),
    ("mapbox_token", r"[ps]k\.eyJ", "A-Za-z0-9_.-", 50),
    ("neon_key", r"napi_", _ALNUM, 50),
    ("netlify_token", r"nfp_", _ALNUM, 36),
    ("notion_token", r"secret_", _ALNUM, 43),
    ("nuget_key", r"oy2", "a-z0-9", 43),
    ("nvidia_key", r"nvapi-", _URL64, 50),
    ("octopus_key", r"API-", "A-Z0-9", 26),
    (
        "onepassword_key",
        r"A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})-[A-Z0-9]{5}-[A-Z0-9]{5}-",
        "A-Z0-9",
        5,
    ),
    ("onepassword_token", r"ops_eyJ", _B64, 60),
    ("openshift_token", r"sha256~", _URL64, 43),
    ("pinecone_key", r"pcsk_", "A-Za-z0-9_", 50),
    ("posthog_key", r"phx_", _ALNUM, 36),
    ("circleci_token", r"CCIPAT_[A-Za-z0-9]{22}_", "0-9a-f", 40),
    ("plaid_token", r"access-(?:sandbox|development|production)-", "0-9a-f-", 36),
    ("prefect_key", r"pn[ub]_", _ALNUM, 36),
    ("readme_key", r"rdme_", "a-z0-9", 70),
    ("render_key", r"rnd_", _ALNUM, 32),
    ("resend_key", r"re_[A-Za-z0-9]{8}_", _ALNUM, 20),
    ("scalingo_token", r"tk-us-", _URL64, 48),
    ("settlemint_token", r"sm_(?:aat|pat|sat)_", _ALNUM, 16),
    ("shippo_token", r"shippo_(?:live|test)_", _HEX, 40),
    ("snyk_token", r"snyk_[us]at\.", "A-Za-z0-9_.-", 30),
    ("sonar_token", r"sq[upa]_", "0-9a-f", 40),
    ("sourcegraph_token", r"sgp_(?:[0-9a-fA-F]{16}_|local_)?", _HEX, 40),
    ("sourcegraph_token", r"slk_", _HEX, 64),
    ("tailscale_key", r"tskey-[a-z]{3,10}-", "A-Za-z0-9-", 20),
    ("together_key", r"tgp_v1_", _URL64, 40),
    ("typeform_token", r"tfp_", "A-Za-z0-9_.=-", 50),
    ("vercel_token", r"vc[aikpr]_", _ALNUM, 24),
    ("yandex_key", r"AQVN", _URL64, 35),
    ("yandex_token", r"t1\.[A-Za-z0-9_=-]{10,}\.", "A-Za-z0-9_-", 80),
)

NAMES: Final = (
    "adafruit|adobe|airtable|algolia|alibaba|aliyun|artifactory|asana|atlassian|beamer|bitbucket"
    "|bittrex|circleci|clickhouse|cloudflare|codecov|cohere|coinbase|confluen(?:t|ce)|contentful"
    "|datadog|discord|drone_?ci|dropbox|etsy|facebook|fastly|finicity|finnhub|flickr|flutterwave"
    "|freshbooks|gitter|gocardless|heroku|hubspot|intercom|jenkins|jfrog|jira|kraken|kucoin"
    "|launchdarkly|linkedin|lob|looker|mailchimp|mailgun|mapbox|mattermost|maxmind|meraki"
    "|messagebird|new[_-]?relic|nytimes|octopus|okta|pagerduty|plaid|privateai|rapidapi|sendbird"
    "|sentry|snyk|sourcegraph|splunk|spotify|squarespace|sumo(?:logic)?|telegram|travis(?:ci)?|trello|twilio"
    "|twitch|twitter|yandex|zendesk"
)
"""Providers whose keys have no look of their own."""
