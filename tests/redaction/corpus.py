"""Made-up secrets of every common shape in every place one turns up, and what only looks like one.

All of it is generated from a fixed seed; nothing here ever opened anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import string
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

PLAIN = string.ascii_letters + string.digits
TEXT = PLAIN + "_-"
HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + string.digits


class Planted(NamedTuple):
    """``value`` is what a sender would send; ``secret`` must not be in it any more."""

    shape: str
    place: str
    secret: str
    value: Any


class Innocent(NamedTuple):
    """``value`` must come back as it is."""

    kind: str
    value: Any


SHAPES: dict[str, str] = {
    "openai": "sk-{T48}",
    "openai project": "sk-proj-{T80}",
    "anthropic": "sk-ant-api03-{T90}",
    "underscore": "sk_{P32}",
    "public and private": "rk-{P24}",
    "openrouter": "sk-or-v1-{h64}",
    "langfuse": "sk-lf-{uuid}",
    "stripe": "sk_live_{P24}",
    "stripe restricted": "rk_test_{P24}",
    "stripe webhook": "whsec_{P32}",
    "github": "ghp_{P36}",
    "github app": "ghs_{P36}",
    "github fine": "github_pat_{P22}_{P59}",
    "gitlab": "glpat-{T20}",
    "aws": "AKIA{U16}",
    "aws temporary": "ASIA{U16}",
    "google": "AIza{T35}",
    "google oauth": "ya29.{T60}",
    "google client": "GOCSPX-{T28}",
    "google refresh": "1//0{T44}",
    "slack bot": "xoxb-{d12}-{d12}-{P24}",
    "slack user": "xoxp-{d12}-{d12}-{d12}-{h32}",
    "slack app": "xapp-1-A{U10}-{d13}-{h64}",
    "hugging face": "hf_{P34}",
    "npm": "npm_{P36}",
    "pypi": "pypi-AgEIcHlwaS5vcmc{T80}",
    "rubygems": "rubygems_{h48}",
    "crates": "cio{P32}",
    "jwt": "eyJ{P30}.eyJ{T60}.{T43}",
    "sendgrid": "SG.{T22}.{T43}",
    "twilio": "SK{h32}",
    "mailgun": "key-{h32}",
    "mailchimp": "{h32}-us12",
    "groq": "gsk_{P52}",
    "xai": "xai-{P80}",
    "replicate": "r8_{P37}",
    "perplexity": "pplx-{P48}",
    "tavily": "tvly-dev-{P32}",
    "nvidia": "nvapi-{T64}",
    "langsmith": "lsv2_pt_{h32}_{h10}",
    "fireworks": "fw_{P24}",
    "e2b": "e2b_{h40}",
    "elevenlabs": "sk_{h48}",
    "pinecone": "pcsk_{P6}_{P60}",
    "supabase": "sbp_{h40}",
    "planetscale": "pscale_tkn_{T43}",
    "databricks": "dapi{h32}",
    "digitalocean": "dop_v1_{h64}",
    "heroku": "HRKU-{T60}",
    "atlassian": "ATATT3xFfGF0{T180}",
    "linear": "lin_api_{P40}",
    "notion": "ntn_{P46}",
    "figma": "figd_{T40}",
    "airtable": "pat{P14}.{h64}",
    "postman": "PMAK-{h24}-{h34}",
    "new relic": "NRAK-{U27}",
    "grafana": "glsa_{P32}_{h8}",
    "sentry": "sntrys_eyJ{P100}",
    "docker": "dckr_pat_{T27}",
    "dropbox": "sl.{T130}",
    "shopify": "shpat_{h32}",
    "square": "sq0atp-{T22}",
    "contentful": "CFPAT-{T43}",
    "doppler": "dp.pt.{P43}",
    "vault": "hvs.{T90}",
    "terraform": "{P14}.atlasv1.{T67}",
    "pulumi": "pul-{h40}",
    "age": "AGE-SECRET-KEY-1{U58}",
    "1password": "ops_eyJ{P200}",
    "azure client": "{P3}8Q~{P34}",
    "telegram": "{d10}:AA{T33}",
}

CONTENTS = ("letters", "hex", "passphrase", "symbols")
"""Secrets without a shape: known only by what stands before them."""


class Maker:
    """Values from one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def of(self, letters: str, count: int) -> str:
        return "".join(self.chance.choices(letters, k=count))

    def fill(self, shape: str) -> str:
        kinds = {"T": TEXT, "P": PLAIN, "h": HEX, "U": UPPER, "d": string.digits}
        out, rest = "", shape
        while "{" in rest:
            before, _, rest = rest.partition("{")
            inside, _, rest = rest.partition("}")
            out += before
            out += str(uuid.UUID(int=self.chance.getrandbits(128))) if inside == "uuid" else self.of(kinds[inside[0]], int(inside[1:]))  # fmt: skip
        return out + rest

    def shapeless(self, kind: str) -> str:
        if kind == "letters":
            return self.of(PLAIN, 24)
        if kind == "hex":
            return self.of(HEX, 32)
        if kind == "passphrase":
            return "-".join(self.chance.choices(["correct", "horse", "battery", "staple"], k=3)) + self.of(string.digits, 3)  # fmt: skip
        return self.of(PLAIN + "!#%*+^", 14)


def text_places(secret: str) -> Iterator[tuple[str, Any]]:
    """Where a credential that has a shape of its own turns up."""
    yield "text", {"text": f"I will use {secret} for the call."}
    yield (
        "error text",
        {"error": f"AuthenticationError: 401 Incorrect API key provided: {secret}. You can find"},
    )
    yield "JSON in a string", {"args": json.dumps({"headers": {"X-Auth": secret}, "n": 1})}
    yield "shell", {"cmd": f"export SOMETHING='{secret}' && ./run.sh"}
    yield "list", {"argv": ["run", "--with", secret, "--fast"]}
    yield "markdown", {"text": f"Key:\n```\n{secret}\n```\nkeep it safe"}
    yield "split over chunks", {"chunks": ["the key is ", secret[:9], secret[9:], " as said"]}


def named_places(secret: str) -> Iterator[tuple[str, Any]]:
    """Where anything is a secret for the name before it."""
    yield "key", {"api_key": secret}
    yield "deep key", {"a": [{"b": {"clientSecret": secret}}]}
    yield "header", {"headers": {"Authorization": f"Bearer {secret}"}}
    yield "header pair", {"headers": [["authorization", secret], ["accept", "*/*"]]}
    yield "named value", {"attributes": [{"name": "DB_PASSWORD", "value": secret}]}
    yield "header in text", {"text": f"curl -H 'Authorization: Bearer {secret}' https://api.example.com"}
    yield "option", {"argv": ["run", f"--api-key={secret}"]}
    yield "option pair", {"argv": ["run", "--password", secret]}
    yield "environment", {"text": f"DATABASE_PASSWORD={secret}"}
    yield "JSON in a string", {"args": json.dumps({"password": secret})}
    yield "JSON in JSON in a string", {"args": json.dumps({"body": json.dumps({"client_secret": secret})})}
    yield "YAML", {"text": f'password: "{secret}"'}
    yield "query", {"url": f"https://api.example.com/v1?access_token={secret}&page=2"}
    yield "cookie", {"text": f"Cookie: session={secret}; theme=dark"}


def planted(seed: int = 1) -> list[Planted]:
    """At least one of each shape in each place it can be in."""
    maker, found = Maker(seed), []
    for shape, form in SHAPES.items():
        for n, (place, _) in enumerate(text_places("x" * 12)):
            secret = maker.fill(form)
            found.append(Planted(shape, place, secret, list(text_places(secret))[n][1]))
    for kind in CONTENTS:
        for n, (place, _) in enumerate(named_places("x" * 12)):
            secret = maker.shapeless(kind)
            found.append(Planted(kind, place, secret, list(named_places(secret))[n][1]))
    for _ in range(5):
        user, password = maker.of(PLAIN, 8), maker.of(PLAIN, 14)
        basic = base64.b64encode(f"{user}:{password}".encode()).decode()
        found.append(Planted("basic", "header in text", basic, {"text": f"Authorization: Basic {basic}"}))
        for scheme in ("postgres", "redis", "https", "mongodb+srv", "amqp"):
            found.append(
                Planted(
                    "password", "URL", password, {"url": f"{scheme}://{user}:{password}@db.example.com/x"}
                )
            )
        body = "\n".join(maker.of(PLAIN + "+/", 64) for _ in range(6))
        for kind in ("RSA ", "EC ", "OPENSSH ", "", "ENCRYPTED "):
            pem = f"-----BEGIN {kind}PRIVATE KEY-----\n{body}\n-----END {kind}PRIVATE KEY-----\n"
            found.append(Planted("pem", "text", body, {"text": f"here:\n{pem}done"}))
            found.append(
                Planted(
                    "pem", "JSON in a string", json.dumps(body)[1:-1], {"args": json.dumps({"file": pem})}
                )
            )
        found.append(Planted("webhook", "URL", hook := maker.of(PLAIN, 24), {"url": f"https://hooks.slack.com/services/T{maker.of(UPPER, 8)}/B{maker.of(UPPER, 8)}/{hook}"}))  # fmt: skip
        found.append(Planted("signature", "URL", sig := maker.of(HEX, 64), {"url": f"https://b.s3.amazonaws.com/k?X-Amz-Expires=60&X-Amz-Signature={sig}"}))  # fmt: skip
        found.append(Planted("account key", "connection string", key := maker.of(PLAIN + "+/", 86) + "==", {"text": f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={key};EndpointSuffix=core.windows.net"}))  # fmt: skip
    return found


WORDS = Path(__file__).with_name("innocent.txt").read_text(encoding="utf-8").splitlines()
"""Prose and code, a line each."""
KEYS: tuple[dict[str, Any], ...] = (
    {"max_tokens": 4096}, {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}, {"maxTokens": 100},
    {"gen_ai.usage.input_tokens": 5}, {"gen_ai.usage.output_tokens": 7}, {"gen_ai.usage.cache_read.input_tokens": 2},
    {"llm.token_count.prompt": 20}, {"tokenizer": "cl100k_base"}, {"token_type": "input"}, {"tokens": ["the", "cat"]},
    {"stop_tokens": ["</s>"]}, {"token_usage": {"in": 1, "model": "gpt-5"}}, {"max_output_tokens": "8192"},
    {"next_page_token": "abc"}, {"token_limit": 100}, {"tokens_in": 5, "tokens_out": 6}, {"reasoning_tokens": 9},
    {"tokenization": "bpe"}, {"eos_token": "<|im_end|>"}, {"keyboard": "qwerty"}, {"monkey": "business"},
    {"author": "somebody"}, {"key": "value"}, {"primary_key": "id"}, {"foreign_key": "user_id"}, {"key_id": 7},
    {"passenger": "Ada"}, {"bypass": True}, {"compass": "north"}, {"secret": None}, {"cookie": True},
    {"PWD": "/home/u/project", "OLDPWD": "/tmp"},
)  # fmt: skip


def innocents(seed: int = 2) -> list[Innocent]:
    """Look-alikes: hashes, ids, counters, code, prose."""
    maker, found = Maker(seed), []
    for n in range(30):
        data = maker.of(PLAIN, 20).encode()
        for kind in ("md5", "sha1", "sha256", "sha512"):
            found.append(
                Innocent(kind, {"text": f"{kind} of part {n}: {hashlib.new(kind, data).hexdigest()}"})
            )
        found.append(Innocent("uuid", {"id": str(uuid.UUID(int=maker.chance.getrandbits(128)))}))
        found.append(
            Innocent("commit", {"text": f"merged {maker.of(HEX, 40)} into main ({maker.of(HEX, 7)})"})
        )
        found.append(Innocent("trace id", {"trace_id": maker.of(HEX, 32), "span_id": maker.of(HEX, 16)}))
        found.append(Innocent("ulid", {"id": maker.of("0123456789ABCDEFGHJKMNPQRSTVWXYZ", 26)}))
        found.append(
            Innocent(
                "call id", {"call_id": f"call_{maker.of(PLAIN, 24)}", "id": f"toolu_{maker.of(PLAIN, 24)}"}
            )
        )
        found.append(
            Innocent(
                "message id", {"id": f"msg_{maker.of(PLAIN, 24)}", "run": f"chatcmpl-{maker.of(PLAIN, 29)}"}
            )
        )
        found.append(Innocent("base64", {"image": base64.b64encode(maker.chance.randbytes(60)).decode()}))
        found.append(
            Innocent("path", {"path": f"/home/u/{maker.of(HEX, 8)}/task-{n}/risk-{maker.of(HEX, 12)}.py"})
        )
        found.append(
            Innocent(
                "url",
                {"url": f"https://example.com:{4000 + n}/v1/{maker.of(HEX, 24)}?page={n}&q=token+price"},
            )
        )
        found.append(
            Innocent(
                "counter",
                {"text": f"max_tokens={maker.of('123456789', 9)}, seed={maker.of('123456789', 12)}"},
            )
        )
    found += [Innocent("prose or code", {"text": text}) for text in WORDS]
    found += [Innocent("prose in JSON", {"args": json.dumps({"text": text, "n": 1})}) for text in WORDS]
    found += [Innocent("key", value) for value in KEYS]
    found += [Innocent("key in JSON", {"args": json.dumps(value)}) for value in KEYS]
    return found
