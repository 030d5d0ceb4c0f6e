"""What has to be found, and what must not: texts for the rules of ``toolpost.redact``.

Nothing in here is a secret, and nothing looks like one before it is put together: every key is
made of parts when the tests run, so that no scanner trips over this file.
"""

from __future__ import annotations

import base64
import json
import random
import string

_R = random.Random(20_26)
ALNUM = string.ascii_letters + string.digits


def made(length: int, alphabet: str = ALNUM) -> str:
    """A random text with letters and digits in it."""
    while True:
        text = "".join(_R.choice(alphabet) for _ in range(length))
        if any(c.isdigit() for c in text) and any(c.isalpha() for c in text):
            return text


HEX = "0123456789abcdef"
URL64 = ALNUM + "_-"
B64 = ALNUM + "+/"


def _jwt() -> str:
    def part(text: str) -> str:
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    return ".".join((part('{"alg":"HS256","typ":"JWT"}'), part('{"sub":"1234567890"}'), made(43)))


def _pem(label: str, *headers: str) -> str:
    lines = [made(64, B64) for _ in range(12)]
    return "\n".join((f"-----BEGIN {label}-----", *headers, *lines, f"-----END {label}-----"))


# (kind, the secret itself, the text it stands in; "{}" is where)
SECRETS: list[tuple[str, str, str]] = [
    ("aws_access_key", "AK" + "IA" + made(16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"), "use {} now"),
    ("aws_access_key", "AS" + "IA" + "ZQKVTRXWBNMLHGFD", "only letters {}"),
    ("secret", made(40, B64), "aws_secret_access_key = {}"),
    ("gcp_key", "AI" + "za" + made(35, URL64), "https://maps.example/js?key={}&v=3"),
    ("toolpost_key", "tp" + "k_" + HEX[:12] + "_" + HEX * 4, "key {}"),
    ("gcp_token", "ya" + "29." + made(80, URL64), "got {}"),
    ("gcp_secret", "GOC" + "SPX-" + made(28, URL64), "{}"),
    ("azure_key", made(86, B64) + "==", "AccountName=x;AccountKey={};EndpointSuffix=core"),
    ("azure_secret", made(3) + "8Q" + "~" + made(34), "client {}"),
    ("github_token", "gh" + "p_" + made(36), "git clone https://{}@github.com/a/b"),
    ("github_token", "gh" + "s_" + made(36), "{}"),
    ("github_token", "github" + "_pat_" + made(22) + "_" + made(59), "token {}"),
    ("gitlab_token", "gl" + "pat-" + made(20, URL64), "PRIVATE-TOKEN: {}"),
    ("slack_token", "xo" + "xb-" + "123456789012-1234567890123-" + made(24), "SLACK={}"),
    ("slack_token", "xa" + "pp-1-" + "A0123456789-1234567890123-" + made(24), "{}"),
    ("slack_webhook", "T0" + made(9) + "/B0" + made(9) + "/" + made(24),
     "https://hooks.slack" + ".com/services/{}"),
    ("stripe_key", "sk" + "_live_" + made(24), "Stripe('{}')"),
    ("stripe_key", "rk" + "_test_" + made(24), "{}"),
    ("stripe_key", "wh" + "sec_" + made(32), "{}"),
    ("openai_key", "sk" + "-" + made(48), "OPENAI {}"),
    ("openai_key", "sk" + "-proj-" + made(60, URL64), "key is {}"),
    ("anthropic_key", "sk" + "-ant-" + "api03-" + made(93, URL64), "export {}"),
    ("huggingface_token", "h" + "f_" + made(34), "login {}"),
    ("sendgrid_key", "S" + "G." + made(22, URL64) + "." + made(43, URL64), "{}"),
    ("twilio_key", "S" + "K" + made(32, HEX), "sid {}"),
    ("npm_token", "np" + "m_" + made(36), "//registry/:_authToken={}"),
    ("pypi_token", "py" + "pi-" + "AgEIcHlwaS5vcmc" + made(80, URL64), "twine {}"),
    ("digitalocean_token", "do" + "p_v1_" + made(64, HEX), "{}"),
    ("telegram_token", "123456789" + ":AA" + made(33, URL64), "bot{}/send".replace("bot", "bot ")),
    ("vault_token", "hv" + "s." + made(24), "VAULT {}"),
    ("docker_token", "dckr" + "_pat_" + made(27, URL64), "docker login {}"),
    ("password", "s3cr3tpw", "jdbc:postgresql://h/db?user=ann&password={}&ssl=true"),
    ("password", "tea", "mysql+x://h/db?password={}"),
    ("password", "p@ss/w0rd", "dsn = 'ann:{}@tcp(db:3306)/x?parseTime=true'"),
    ("private_key", _pem("RSA PRIV" + "ATE KEY"), "config:\n{}\nend"),
    ("private_key", _pem("OPENSSH PRIV" + "ATE KEY"), "{}"),
    ("private_key", _pem("EC PRIV" + "ATE KEY", "Proc-Type: 4,ENCRYPTED",
                         "DEK-Info: AES-128-CBC,0011", ""), "{}"),
    ("private_key", _pem("PGP PRIV" + "ATE KEY BLOCK", "Version: GnuPG v2", ""), "{}"),
    ("jwt", _jwt(), "cookie {};"),
    ("bearer_token", made(40), "Authorization: Bearer {}"),
    ("bearer_token", made(40, HEX), "authorization: token {}"),
    ("basic_credentials", base64.b64encode(b"ann:open sesame").decode(), "Authorization: Basic {}"),
    ("url_password", "s3cr3t", "postgresql://ann:{}@db.example.com:5432/app"),
    ("url_password", "p@ss:w0rd", "amqp://ann:{}@mq/"),
    ("url_password", "letmein", "redis://:{}@cache:6379/0"),
    ("url_password", "s3cr3t", "next=https%3A%2F%2Fann%3A{}%40example.com"),
    ("url_password", "s3cr3t", '"https:\\/\\/ann:{}@example.com"'),
    ("password", "hunter2", "Server=db;Database=app;User Id=sa;Password={};Encrypt=true"),
    ("password", "hunter2", "host=db user=app password={} dbname=x"),
    ("secret", "Summer2024!", "password={}"),
    ("secret", "correct4horse5", 'password: "{}"'),
    ("secret", made(32, HEX), "api_key={}"),
    ("secret", made(32, HEX), "https://api.example.com/v1?api_key={}&q=tea"),
    ("secret", made(40), '{{"client_secret": "{}"}}'),
    ("secret", made(40), '{{\\"access_token\\": \\"{}\\"}}'),
    ("secret", made(24), "SECRET_KEY='{}'"),
    ("secret", made(24), "DB_PASSWORD: {}"),
    ("secret", made(32), "curl --api-key {} https://example.com"),
    ("password", "hunter2", "curl -sS -u bob:{} https://example.com/api"),
    ("password", "open sesame", "curl --proxy-user 'bob:{}' https://example.com"),
    ("password", "hunter2", "mysql -h db -uroot -p{} app < dump.sql"),
    ("password", "open sesame", 'mysqldump -p"{}" app'),
    ("cookie", made(24), "Cookie: theme=dark; session={}; lang=en"),
    ("cookie", "abc123def456", '{{"Cookie": "sessionid={}"}}'),
    ("cookie", made(32, HEX), "Set-Cookie: id={}; Path=/; HttpOnly; Max-Age=3600"),
    ("url_signature", made(20), "https://example.com/file?sv=1&sig={}&x=1"),
    ("url_signature", made(32, HEX), "https://example.com/file?signature={}"),
    ("url_signature", made(64, HEX),
     "https://b.s3.example.com/k?X-Amz-Expires=60&X-Amz-Signature={}"),
    ("secret", "$2b$12$" + made(53, ALNUM + "./"), "password_hash token: {}"),
    # the same of providers whose rules came later
    ("airtable_token", "pa" + "t" + made(14) + "." + made(64, HEX), "use {} there"),
    ("azure_secret", "aB" + "c8Q" + "~" + made(34), "secret='{}'"),
    ("bedrock_key", "AB" + "SK" + made(130, B64), "key {}"),
    ("brevo_key", "xk" + "eysib-" + made(64, HEX) + "-" + made(16), "{}"),
    ("discord_token", "MT" + made(24) + "." + made(6) + "." + made(38), "login('{}')"),
    ("dropbox_token", "s" + "l." + made(136, URL64), "{}"),
    ("facebook_token", "E" + "AA" + made(120), "page token {}"),
    ("facebook_secret", "12345678901234" + "56|" + made(27, URL64), "app {}"),
    ("google_refresh_token", "1" + "//0" + made(64, URL64), "refresh {}"),
    ("intra42_secret", "s-s4" + "t2ud-" + made(64, HEX), "{}"),
    ("kubernetes_secret", base64.b64encode(b"correct horse").decode(),
     "apiVersion: v1\nkind: Secret\ndata:\n  # one\n  pw: {}\ntype: Opaque\n"),
    ("mailchimp_key", made(32, HEX) + "-us" + "14", "chimp {}"),
    ("onepassword_token", "op" + "s_eyJ" + made(200, B64), "{}"),
    ("shippo_token", "ship" + "po_live_" + made(40, HEX), "{}"),
    ("sourcegraph_token", "sg" + "p_" + made(16, HEX) + "_" + made(40, HEX), "{}"),
    ("teams_webhook", made(32, HEX) + "/550e8400-e29b-41d4-a716-446655440000",
     "https://x.webhook.office.com/webhookb2/" + "@".join([made(36, HEX)] * 2)
     + "/IncomingWebhook/{}"),
    ("telegram_token", "bot" + "123456789" + ":A" + made(34, URL64), "https://t.example/{}/send"),
    ("vault_token", "s" + "." + made(24), "old vault {}"),
    ("secret", made(32, "abcdefghijklmnopqrstuvwxyz0123456789"), "finnhub_access = '{}'"),
    ("secret", made(40), 'put("API_TOKEN", "{}")'),
    ("secret", made(40), "<accessToken>{}</accessToken>"),
    ("authorization", made(32), "Authorization: SSWS {}"),
    ("authorization", "k3y-of-ours", "curl -H 'X-Api-Key: {}' https://example.com"),
    ("basic_credentials", base64.b64encode(b"ann:open sesame").decode(), '{{"auth": "{}"}}'),
    ("password", "s3same", "machine example.com login ann password {}"),
    ("password", "open sesame", '<add key="ClearTextPassword" value="{}" />'),
    ("password", "hunter2", "curl -uann:{} https://example.com"),
    ("password", "hunter2", "curl --user=ann:{} https://example.com"),
    ("password", "hunter2", "curl -sSu 'ann:{}' https://example.com"),
    ("password", "hunter2", "curl -u ':{}' https://example.com"),
    ("password", "t0k3n4ann", "curl -u '{}:' https://example.com"),
    ("password", "hunter2", "curl -X POST \\\n  -u \\\n  'ann:{}' https://example.com"),
]  # fmt: skip

PERSONAL: list[tuple[str, str, str]] = [
    ("email", "bob@example.com", "write to {}."),
    ("email", "ann.b-c+news@mail.example.co.uk", "<{}>"),
    ("email", "müller@bücher.example", "an {} senden"),
    ("email", "x@y.io", "{}"),
    ("email", "bob%40example.com", "https://example.com/?mail={}&x=1"),
    ("phone", "+1 (415) 555-2671", "call {} now"),
    ("phone", "+49 30 901820", "Tel. {}"),
    ("phone", "+442079460958", "{}"),
    ("phone", "(415) 555-2671", "home {}"),
    ("phone", "415-555-2671", "{}"),
    ("phone", "415.555.2671", "fax {}"),
    ("phone", "030 1234567", "Telefon: {}"),
    ("phone", "(0151) 23456789", "Handy {}"),
    ("phone", "020 7946 0123", "{}"),
    ("phone", "06 98 76 54 32", "{}"),
    ("phone", "03-9876-5432", "{}"),
    ("phone", "(21) 98765-4321", "{}"),
    ("phone", "5551234", "call me at {}"),
    ("phone", "91 411 47 32", '{{"phone_number": "{}"}}'),
    ("card", "4111 1111 1111 1111", "card {}, exp 12/30"),
    ("card", "4111111111111111", '"pan":"{}"'),
    ("card", "5555-5555-5555-4444", "{}"),
    ("card", "378282246310005", "amex {}"),
    ("card", "3782 822463 10005", "amex {}"),
    ("card", "4111 1111 1111 1111", "order 1234 {}"),
    ("card", "6011111111111117", "{}"),
    ("card", "30569309025904", "{}"),
    ("card", "6200000000000005", "{}"),
    ("iban", "DE89 3704 0044 0532 0130 00", "IBAN {} EUR 20"),
    ("iban", "GB29NWBK60161331926819", "to {}"),
    ("iban", "NO93 8601 1117 947", "{}"),
    ("ip", "203.0.113.7", "from {} port 22"),
    ("ip", "8.8.8.8", "http://{}/x"),
    ("ip", "2001:db8:85a3::8a2e:370:7334", "src {}"),
    ("ip", "2001:0db8:0000:0000:0000:ff00:0042:8329", "{}"),
    ("national_id", "078-05-1120", "SSN {}"),
    ("national_id", "529.982.247-25", "CPF {}"),
    ("national_id", "12345678Z", "DNI {}"),
    ("national_id", "X1234567L", "NIE {}"),
    ("national_id", "RSSMRA85T10A562S", "CF {}"),
    ("national_id", "2 69 05 49 588 157 80", "NIR {}"),
    ("national_id", "811228-9874", "personnummer {}"),
    ("national_id", "131052-308T", "HETU {}"),
    ("national_id", "11010519491231002X", "ID {}"),
]

_PNG = base64.b64encode(bytes(_R.randrange(256) for _ in range(6000))).decode()

# Nothing in these is to be found.
ORDINARY: list[str] = [
    # hashes, ids, numbers
    "commit 7d0fefd3b1f2a4c5968778695a4b3c2d1e0f9a8b",
    f"merge {made(40, HEX)} into {made(7, HEX)}",
    "550e8400-e29b-41d4-a716-446655440000",
    "01HZY3K8QWERTYUIOPASDFGH12",
    "019330ab-7e5c-7abc-8def-0123456789ab",
    f"sha256:{made(64, HEX)}",
    f'hash = "sha256:{made(64, HEX)}"',
    f'"integrity": "sha512-{made(86, B64)}=="',
    f'checksum = "{made(64, HEX)}"',
    f"--hash=sha256:{made(64, HEX)} \\",
    f'etag: "{made(32, HEX)}"',
    f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{made(43, B64)}",
    f"data:image/png;base64,iVBORw0KGgo{_PNG}",
    _PNG,
    "\n".join(_PNG[i : i + 76] for i in range(0, 3000, 76)),
    "9007199254740993 1234567890123456789 18446744073709551615",
    "1700000000 1700000000000 1700000000000000000",
    "order 1234567812345678, invoice 4111111111111112, part 5500000000000000",
    "3.141592653589793238462643383279",
    "0xdeadbeefcafebabe 0b101010101010101010101010",
    "ISBN 978-3-16-148410-0, EAN 4006381333931, ISSN 2049-3630",
    "tel:none ext. 1234, room 415-555, 24/7",
    "order 030 1234567, ticket 020 7946 0123, row 01 02 03 04 05, 0123-456-789-012",
    "call 12 times, phone 2024-11-17, fax 17.11.2024, tel 10.20.30.40, mobile 3.14159265",
    # what stands in the place of a key
    "AKIAIOSFODNN7" + "EXAMPLE airtable_key = YOUR_AIRTABLE_KEY discord_token: <token>",
    "curl -u user:password -u name:token https://example.com; curl -u ann:ann https://example.com",
    "curl -H 'Authorization: Bearer ACCESS_TOKEN' -H 'X-Api-Key: your-api-key' https://example.com",
    "heroku_app_id: 550e8400-e29b-41d4-a716-446655440000, okta_version = 2024.01.2",
    "jira_url = https://jira.example.com/browse/ABC-123, twitter: @name_of_2024",
    "kind: Secret\nmetadata:\n  name: x\nkind: ConfigMap\ndata:\n",
    "assembly System, publicKeyToken=31bf3856ad364e35",
    # versions, times, addresses of one's own
    "toolpost version 1.2.3.4, python==3.13.1.0, v10.20.30.40, Chrome/126.0.0.0 Safari/537.36",
    'version = "8.0.1.2"',
    "version: 21.12.0.5",
    "127.0.0.1:8000 0.0.0.0 10.1.2.3 192.168.1.10/24 172.16.0.1 169.254.169.254 ::1 fe80::1",
    "2026-11-15T21:49:07.123456+05:30 12:34:56 2026:11:15",
    "00:1a:2b:3c:4d:5e",
    "std::vec::Vec<std::string::String> a::b::c",
    "1.3.6.1.4.1.311.21.8.1 is an object identifier",
    # things with an @ or a ://
    "git@github.com:owner/repo.git",
    "npm i @types/node@18.0.0 react@18.2.0 lodash@4.17.21",
    "uses: actions/checkout@v4",
    "@app.route('/x')\n@pytest.mark.parametrize\ndef f(): ...",
    "logo@2x.png systemctl start getty@tty1.service",
    "https://example.com:8443/path?x=1#frag http://localhost:3000/@me",
    "postgres://user:${DB_PASSWORD}@db/app and mysql://root:<password>@host and a://b:***@c",
    "docker pull ghcr.io/owner/image@sha256:" + made(64, HEX),
    # flags of other programs, cookies that let nobody in, links that nobody signed
    "docker run -u 1000:1000 --user node:node curl:8 -p8080:80",
    "docker run --name mysql -p3306:3306 mysql:8 && mkdir -pv /srv/mysql",
    'curl -u "$USER:$TOKEN" https://example.com; curl -u ann:<password> -U a:*** x',
    "mysql -p app; mysql -p$PW app; mysql --port 3306; gcc -pthread mysql.c",
    "the -u flag of curl takes name:password",
    "Cookie: theme=dark; lang=en-US; seen=2024-01-01",
    "Set-Cookie: theme=dark; Path=/; Expires=Wed, 21 Oct 2026 07:28:00 GMT; Secure",
    "Cookie: name=value and Set-Cookie: session=<id>; cookie = SimpleCookie()",
    "https://example.com/?signature=required&sig=none&design=0123456789abcdef0123",
    "https://example.com/a%20b/%E6%97%A5?q=100%25&next=%2Fhome%3Fx%3D1",
    "sk-\nThe next line\nkey-\nvalue\neyJ\nis how it begins\nxai-\nand\nso\non",
    "one\u200bword a\x00b\x00c tick\u00ading 👩\u200d💻 ❤\ufe0f 1\ufe0f\u20e3 \x1b[31mred\x1b[0m",
    "4111\n1111\n1111\n1111\n",
    # code and configuration
    'password = getpass.getpass("Password: ")',
    "api_key=os.environ['OPENAI_API_KEY']",
    "api_key = settings.api_key_v2",
    "token: str = Depends(oauth2_scheme)",
    "def login(user: str, password: str, token: Token | None = None) -> Session:",
    "if token == expected_token2: return secrets.token_urlsafe(32)",
    "client = Client(api_key=api_key, token=self.tokens[0], password=new_password2)",
    'parser.add_argument("--token", help="the token to use")',
    "secret: ${{ secrets.DEPLOY_KEY_2024 }}",
    "password: ${DB_PASSWORD_1}",
    "PASSWORD=$PASSWORD1234",
    'password_field = "id_password1"',
    '{"type": "object", "properties": {"password": {"type": "string", "minLength": 8}}}',
    '"token_type": "bearer", "expires_in": 3600',
    "next_page_token: CAUQAAabc123def456ghi789jkl012",
    "max_tokens=4096 tokens: 12345678901234567890",
    'secret = "projects/my-project-123/secrets/db/versions/3"',
    "Authorization: Bearer YOUR_TOKEN_HERE",
    "Authorization: Bearer <token>",
    "use a Bearer authentication-scheme-of-your-choice here, or basic authentication",
    "basic understanding of Basic English, token economy",
    "gh" + "p_" + "x" * 36 + " is what it looks like",
    "sk-spinner-wave-animation-dark-blue-large sk-folding-cube",
    "the header is -----BEGIN PRIV" + "ATE KEY----- and then base64 follows",
    "-----BEGIN CERTIFICATE-----\n" + made(64, B64) + "\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\n" + made(64, B64) + "\n-----END PUBLIC KEY-----",
    "@@ -1,5 +1,8 @@\n+1699999999\n+20240101123456\n-4155552671",
    "x = y +12345678; z=(a)+123456789; f(+1.23456789)",
    "eyJ is how a token begins; eyJhbGciOi.txt is a file",
    "for i in range(10): print(i, end=' ')  # key=lambda kv: kv[1]",
    "primary_key=True, foreign_key='orders.id', sort_key=itemgetter(1), public_key: none",
    "What is the weather in Paris?",
    "Das kostet 1.234.567,89 EUR – höchstens 10.000.000 Stück.",
    "SELECT * FROM users WHERE id = 42 AND created > '2024-01-01' LIMIT 100",
    'Traceback (most recent call last):\n  File "/srv/app/main.py", line 12, in <module>',
    "AB12 CD34 EF56 GH78 IJ90, FR76 is where it begins, DE00 0000 0000 0000 0000 00",
    "123-45-678 000-12-3456 666-12-3456 900-12-3456 123-00-1234",
    "RSSMRA85T10A562X 12345678A 529.982.247-26 811228-9875",
    "license keys look like AAAAA-BBBBB-CCCCC-DDDDD-EEEEE",
    "1f3870be274f6c49b3e31a0c6728957f  archive.tar.gz",
    "s3://bucket/key-0123456789/part-00000-of-00010.parquet",
    "https://example.com/reset?password=<new>&pwd=$PW, ann:${PW}@tcp(db:3306)/x, a&password == b",
    # ends of words that look like the beginning of a key, and codes that hide nothing
    f"disk_test_performance1 cache_key-{made(32, HEX)} task-{made(12)}-{made(12)}",
    r"C:\new\table\bin\ferry\4111 \u00e9t\u00e9 \x1b[31mred\x1b[0m %02d:%02d %0Atwo \nthree\tfour",
    json.dumps({"a": json.dumps({"log": "one\ntwo\r\n\t127.0.0.1 'x' 3.14159265358979 ok"})}),
    "x" + _PNG[:50] + "AI" + "za" + _PNG[50:200],
]

# A key of these is one even where a letter stands before it.
JOINED = ("aws_access_key", "anthropic_key", "gcp_key", "github_token", "gitlab_token", "jwt",
          "npm_token", "pypi_token", "sendgrid_key", "slack_token", "toolpost_key")  # fmt: skip


def texts(rows: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """(kind, value, text) with the value in its place."""
    return [(kind, value, around.format(value)) for kind, value, around in rows]
