"""Labelled samples to judge ``classify_data`` by: written here, generated, or taken from the
standard library and from packages that are installed anyway.

A label is ``kind`` or ``kind/format``.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import sqlite3
import struct
import sysconfig
import tarfile
import tempfile
import textwrap
import wave
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.builtin.log_families import FAMILIES, generated

B64 = "MIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQswCQYDVQQGEwJJ"


class Labelled(NamedTuple):
    label: str
    data: bytes
    name: str = ""


def _block(label: str) -> str:
    lines = "\n".join([B64] * 12)
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"


WRITTEN: list[tuple[str, str]] = [
    ("json", '{"name": "x", "values": [1, 2, 3], "ok": true}'),
    ("json", "[1, 2, 3]"),
    ("json", json.dumps([{"id": n, "tags": ["a", "b"]} for n in range(50)], indent=2)),
    ("json/openapi", '{"openapi": "3.1.0", "info": {"title": "t"}, "paths": {}}'),
    ("json/notebook", '{"cells": [], "nbformat": 4, "metadata": {}}'),
    ("json/package.json", '{"name": "a", "version": "1.0.0", "dependencies": {"b": "^2"}}'),
    ("json/json lines", '{"id": 1, "name": "a"}\n{"id": 2, "name": "b"}\n{"id": 3, "name": "c"}\n'),
    ("json/json with comments", '{\n  // where it listens\n  "port": 80,\n  "hosts": ["a"],\n}\n'),
    ("json/geojson", '{"type": "FeatureCollection", "features": []}'),
    ("json", '"just a string in quotes and [brackets]"'.join(["[", "]"])),
    ("yaml", "name: app\nversion: 2\nlist:\n  - one\n  - two\n"),
    ("yaml", "---\n- hosts\n- name: a\n  size: 3\n"),
    ("yaml", "# settings\ndatabase:\n  host: localhost\n  port: 5432\nlogging:\n  level: info\n"),
    ("yaml/kubernetes", ("apiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec:\n"
                        "  ports:\n  - port: 80\n")),
    ("yaml/docker compose", ("services:\n  web:\n    image: nginx:1.27\n    ports:\n"
                            "      - \"80:80\"\nvolumes:\n  data: {}\n")),
    ("yaml/github workflow", ("name: ci\non: [push]\njobs:\n  test:\n    runs-on: ubuntu-latest\n"
                             "    steps:\n      - run: make\n")),
    ("yaml/openapi", ("openapi: 3.1.0\ninfo:\n  title: T\npaths:\n  /a:\n    get:\n"
                     "      summary: x\n")),
    ("yaml", "a: &x\n  b: 1\nc: *x\nd: |\n  text over\n  two lines\n"),
    ("csv/comma separated", "id,name,amount\n1,Ada,10.5\n2,Bo,7\n3,Cy,0.25\n"),
    ("csv/semicolon separated", ("datum;betrag;zweck\n01.02.2026;12,50;Miete\n"
                                "03.02.2026;1,99;Kaffee\n")),
    ("csv/tab separated", "gene\tchrom\tstart\nBRCA1\t17\t43044295\nTP53\t17\t7668402\n"),
    ("csv/pipe separated", "sku|qty|price\nA-1|3|9.99\nB-2|1|5.00\nC-3|12|1.25\n"),
    ("csv/comma separated", '"name","note"\n"Ada","likes, commas"\n"Bo","says ""hi"""\n'),
    ("csv/comma separated", "1,2,3\n4,5,6\n7,8,9\n"),
    ("csv/comma separated", ("timestamp,host,cpu\n2026-03-14T09:00:00Z,a,0.5\n"
                            "2026-03-14T09:01:00Z,b,0.7\n")),
    ("csv/comma separated", ("email,city\na@example.com,Oslo\nb@example.com,Rome\n"
                            "c@example.com,Bonn\n")),
    ("xml", '<?xml version="1.0"?>\n<catalog><book id="1"><title>T</title></book></catalog>\n'),
    ("xml/rss", ('<?xml version="1.0"?><rss version="2.0"><channel><title>t</title></channel></rs'
                's>')),
    ("xml/soap", '<?xml version="1.0"?><soap:Envelope xmlns:soap="u"><soap:Body/></soap:Envelope>'),
    ("xml/junit report", ('<testsuites><testsuite name="a" tests="1"><testcase '
                         'name="b"/></testsuite></testsuites>')),
    ("xml/plist", ('<?xml version="1.0"?><!DOCTYPE plist PUBLIC "-//A" "u"><plist '
                  'version="1.0"><dict/></plist>')),
    ("xml", "<config>\n  <server port=\"80\"/>\n  <server port=\"81\"/>\n</config>\n"),
    ("image/svg", ('<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"><rect '
                  'width="8"/></svg>')),
    ("html", "<!DOCTYPE html>\n<html><head><title>t</title></head><body><p>Hi</p></body></html>\n"),
    ("html", "<html>\n<body>\n<h1>Title</h1>\n<div class=\"a\">text</div>\n</body>\n</html>\n"),
    ("html", "<div>\n  <p>A fragment</p>\n  <a href=\"/x\">link</a>\n</div>\n"),
    ("config/toml", ("title = \"x\"\n[owner]\nname = \"a\"\n[[servers]]\nip = \"10.0.0.1\"\n"
                    "ports = [80, 81]\n")),
    ("config/pyproject", ("[build-system]\nrequires = [\"hatchling\"]\n\n[project]\n"
                         "name = \"x\"\nversion = \"1\"\n")),
    ("config/cargo", ("[package]\nname = \"x\"\nversion = \"0.1.0\"\n\n[dependencies]\n"
                     "serde = \"1\"\n")),
    ("config/ini", ("[server]\nhost = localhost\nport = 80\n\n[log]\nfile = /var/log/a.log\n"
                   "level = debug\n")),
    ("config/ini", ("; php settings\n[PHP]\nmemory_limit = 128M\ndisplay_errors = Off\n[Date]\n"
                   "date.timezone = UTC\n")),
    ("config/systemd unit", ("[Unit]\nDescription=x\nAfter=network.target\n\n[Service]\n"
                            "ExecStart=/usr/bin/x\n\n[Install]\nWantedBy=multi-user.target\n")),
    ("config/git config", ("[core]\n\trepositoryformatversion = 0\n[remote \"origin\"]\n"
                          "\turl = git@example.com:a/b.git\n")),
    ("config/env", "PORT=8080\nDEBUG=true\nAPP_NAME=\"my app\"\n# comment\nREDIS_HOST=localhost\n"),
    ("config/env", "export PATH_TO=/opt/x\nexport LOG_LEVEL=info\n"),
    ("config/properties", ("server.port=8080\nspring.datasource.url=jdbc:postgresql://localhost/d"
                          "b\nlogging.level.root=INFO\n")),
    ("config/nginx", ("server {\n    listen 80;\n    server_name example.com;\n    location / {\n"
                     "        proxy_pass http://127.0.0.1:8000;\n    }\n}\n")),
    ("config/nginx", ("worker_processes 4;\nevents {\n  worker_connections 1024;\n}\nhttp {\n"
                     "  include mime.types;\n  sendfile on;\n}\n")),
    ("config/apache httpd", ("<VirtualHost *:80>\n    ServerName example.com\n"
                            "    DocumentRoot /var/www\n    <Directory /var/www>\n"
                            "        Require all granted\n    </Directory>\n</VirtualHost>\n")),
    ("config/dockerfile", ("FROM python:3.13-slim\nWORKDIR /app\nCOPY . .\n"
                          "RUN pip install -r requirements.txt\nCMD [\"python\", \"app.py\"]\n")),
    ("config/dockerfile", ("ARG V=1\nFROM node:$V AS build\nRUN npm ci && \\\n    npm run build\n"
                          "EXPOSE 3000\nUSER node\n")),
    ("config/terraform", ("resource \"aws_instance\" \"web\" {\n  ami           = \"ami-1\"\n"
                         "  instance_type = \"t3.micro\"\n}\n\nvariable \"region\" {\n"
                         "  default = \"eu-west-1\"\n}\n")),
    ("config/crontab", ("# m h dom mon dow command\n0 5 * * 1 /usr/bin/backup --all\n"
                       "*/10 * * * * /usr/bin/poll\n")),
    ("config/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost\n10.0.0.5 db.internal db\n"),
    ("config/requirements", "requests==2.32.0\nnumpy>=2\nclick~=8.1\n"),
    ("config/fstab", ("# <file system> <mount> <type> <options> <dump> <pass>\n"
                     "UUID=abcd / ext4 defaults 0 1\n/dev/sdb1 /data xfs noatime 0 2\n")),
    ("config/passwd", ("root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/"
                      "nologin\n")),
    ("config/ssh config", ("Host bastion\n    HostName 10.0.0.1\n    User admin\n"
                          "    IdentityFile ~/.ssh/id\n")),
    ("config/robots", ("User-agent: *\nDisallow: /private/\nSitemap: "
                      "https://example.com/sitemap.xml\n")),
    ("config/haproxy", ("global\n    maxconn 4096\ndefaults\n    mode http\nfrontend web\n"
                       "    bind *:80\n    default_backend app\nbackend app\n"
                       "    server a 10.0.0.1:80 check\n")),
    ("certificate", _block("CERTIFICATE")),
    ("certificate", _block("CERTIFICATE") + _block("CERTIFICATE")),
    ("certificate", _block("CERTIFICATE REQUEST")),
    ("key", _block("PUBLIC " + "KEY")),
    ("key", _block("ENCRYPTED PRIVATE " + "KEY")),
    ("key", _block("OPENSSH PRIVATE " + "KEY")),
    ("key/ssh public key", f"ssh-ed25519 {B64}{B64} me@host\n"),
    ("metrics/prometheus", ("# HELP http_requests_total Requests.\n"
                           "# TYPE http_requests_total counter\nhttp_requests_total{method=\"get"
                           "\",code=\"200\"} 1027\nhttp_requests_total{method=\"post\",code=\"50"
                           "0\"} 3\n")),
    ("metrics/prometheus", ("up{job=\"a\"} 1\nup{job=\"b\"} 0\nprocess_cpu_seconds_total{job=\"a"
                           "\"} 12.47 1395066363000\n")),
    ("metrics/openmetrics", ("# TYPE a counter\na_total 17\n# TYPE b gauge\nb{x=\"1\"} 4.5\n"
                            "# EOF\n")),
    ("metrics/statsd", ("page.views:1|c\nfuel.level:0.5|g\nsong.length:240|h|@0.5\n"
                       "users.uniques:1234|s\n")),
    ("metrics/statsd", ("api.time:320|ms|#env:prod,region:eu\napi.time:110|ms|"
                       "#env:prod,region:us\n")),
    ("metrics/influx line protocol", ("weather,location=us-midwest temperature=82 "
                                     "1465839830100400200\nweather,location=us-east "
                                     "temperature=75,humidity=40i 1465839830100400201\n")),
    ("metrics/influx line protocol", ("cpu,host=a,region=eu usage_idle=98.2,usage_user=1.1 "
                                     "1710408413000000000\n")),
    ("metrics/graphite", ("servers.web01.cpu.load 0.84 1710408413\n"
                         "servers.web01.mem.free 1024 1710408413\n")),
    ("log/access log", '10.0.0.1 - - [14/Mar/2026:09:26:53 +0000] "GET /a HTTP/1.1" 200 512 "-" '
                       '"curl/8"\n' * 5),
    ("log/nginx error log", "2026/03/14 09:26:53 [error] 12#12: *7 connect() failed (111: "
                            "Connection refused) while connecting to upstream\n" * 4),
    ("log/syslog (rfc 5424)", "<34>1 2026-03-14T09:26:53.003Z host su - ID47 - 'su root' "
                              "failed\n" * 4),
    ("log/kernel log", ("[    0.000000] Linux version 6.1.0\n[    0.004000] Calibrating delay "
                       "loop\n[   12.345678] eth0: link up\n")),
    ("log/journal", ("2026-03-14T09:26:53+0000 host systemd[1]: Started Session 4.\n"
                    "2026-03-14T09:26:54+0000 host sshd[22]: Accepted key\n")),
    ("log/python log", ("2026-03-14 09:26:53,123 - app.web - INFO - started\n"
                       "2026-03-14 09:26:54,001 - app.web - ERROR - failed\n")),
    ("log/python log", "INFO:root:starting\nWARNING:app.db:slow query\nERROR:app.db:gone\n"),
    ("log/spring boot log", "2026-03-14 09:26:53.123  INFO 1 --- [main] c.e.App : Started App "
                            "in 2 seconds\n" * 3),
    ("log/redis log", ("1:M 14 Mar 2026 09:26:53.123 * Ready to accept connections\n"
                      "1:M 14 Mar 2026 09:26:54.000 # Out of memory\n")),
    ("log/mysql log", "2026-03-14T09:26:53.123456Z 0 [Note] mysqld: ready for connections.\n" * 3),
    ("log/container log", ("2026-03-14T09:26:53.123Z stdout F listening on 80\n"
                          "2026-03-14T09:26:54.123Z stderr F failed to bind\n")),
    ("log/json log", ('{"ts":"2026-03-14T09:26:53Z","level":"info","msg":"a"}\n'
                     '{"ts":"2026-03-14T09:26:54Z","level":"error","msg":"b"}\n')),
    ("log/json log", '{"log":"hello\\n","stream":"stdout","time":"2026-03-14T09:26:53.1Z"}\n' * 3),
    ("log/logfmt", ('time=2026-03-14T09:26:53Z level=info msg="a b" id=1\n'
                   'time=2026-03-14T09:26:54Z level=warn msg="c" id=2\n')),
    ("log/application log", ("[2026-03-14 09:26:53] starting up\n[2026-03-14 09:26:55] ready\n"
                            "[2026-03-14 09:27:53] bye\n")),
    ("log/application log", "[INFO] compiling\n[WARN] slow\n[ERROR] broken\n[INFO] done\n"),
    ("log/iis log", ("#Software: Microsoft Internet Information Services 10.0\n"
                    "#Fields: date time s-ip cs-method\n2026-03-14 09:26:53 10.0.0.1 GET /\n")),
    ("stack_trace/python", ('Traceback (most recent call last):\n  File "a.py", line 3, in '
                           '<module>\n    main()\n  File "a.py", line 1, in main\n'
                           '    raise ValueError("no")\nValueError: no\n')),
    ("stack_trace/java", ('Exception in thread "main" java.lang.NullPointerException: x is null\n'
                         '\tat com.a.B.c(B.java:12)\n\tat com.a.Main.main(Main.java:5)\n'
                         'Caused by: java.io.IOException: disk\n\t... 2 more\n')),
    ("stack_trace/javascript", ("TypeError: x is not a function\n    at f (/srv/a.js:1:2)\n"
                               "    at Object.<anonymous> (/srv/b.js:3:4)\n"
                               "    at node:internal/main:5:6\n")),
    ("stack_trace/go", ("panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n"
                       "\t/tmp/a.go:4 +0x39\nexit status 2\n")),
    ("stack_trace/rust", ("thread 'main' panicked at src/main.rs:2:5:\nindex out of bounds\n"
                         "stack backtrace:\n   0: rust_begin_unwind\n"
                         "   1: core::panicking::panic_fmt\nnote: run with RUST_BACKTRACE=1\n")),
    ("stack_trace/ruby", ("app.rb:3:in `divide': divided by 0 (ZeroDivisionError)\n"
                         "\tfrom app.rb:7:in `run'\n\tfrom app.rb:10:in `<main>'\n")),
    ("stack_trace/dotnet", ("System.NullReferenceException: Object reference not set\n"
                           "   at Shop.Cart.Total() in C:\\s\\Cart.cs:line 12\n"
                           "   at Shop.Program.Main(String[] args)\n")),
    ("stack_trace/php", ("PHP Fatal error:  Uncaught Exception: no in /srv/a.php:3\n"
                        "Stack trace:\n#0 /srv/a.php(7): f()\n#1 {main}\n"
                        "  thrown in /srv/a.php on line 3\n")),
    ("stack_trace/native", ("#0  0x00007f3c in raise () from /lib/libc.so.6\n"
                           "#1  0x00007f3d in abort () from /lib/libc.so.6\n"
                           "#2  0x000055d in main (argc=1) at main.c:12\n")),
    ("source_code/javascript", ("const fs = require('fs');\n\nfunction read(name) {\n"
                               "  return fs.readFileSync(name, 'utf8');\n}\n\n"
                               "module.exports = { read };\n")),
    ("source_code/javascript", ("import React from 'react';\n\nexport default function App() {\n"
                               "  const [n, setN] = React.useState(0);\n  useEffect(() => {\n"
                               "    console.log(n);\n  });\n}\n")),
    ("source_code/typescript", ("interface User {\n  id: number;\n  name?: string;\n}\n\n"
                               "export function greet(user: User): string {\n"
                               "  const name: string = user.name ?? 'you';\n"
                               "  return `Hi ${name}`;\n}\n")),
    ("source_code/typescript", ("type Id = string | number;\n\nexport class Store<T> {\n"
                               "  private items: T[] = [];\n  add(item: T): void {\n"
                               "    this.items.push(item);\n  }\n}\n")),
    ("source_code/java", ("package com.example;\n\nimport java.util.List;\n\npublic class App {\n"
                         "    private final List<String> names;\n\n"
                         "    public static void main(String[] args) {\n"
                         "        System.out.println(\"hi\");\n    }\n}\n")),
    ("source_code/kotlin", ("package com.example\n\nimport kotlinx.coroutines.delay\n\n"
                           "data class User(val name: String)\n\n"
                           "suspend fun greet(user: User) {\n    val text = \"Hi "
                           "${user.name}\"\n    println(text)\n}\n")),
    ("source_code/c", ("#include <stdio.h>\n#include <stdlib.h>\n\n"
                      "int main(int argc, char **argv) {\n    char *p = malloc(10);\n"
                      "    printf(\"%d\\n\", argc);\n    free(p);\n    return 0;\n}\n")),
    ("source_code/cpp", ("#include <iostream>\n#include <vector>\n\ntemplate <typename T>\n"
                        "class Stack {\npublic:\n    void push(const T& x) { v.push_back(x); }\n"
                        "private:\n    std::vector<T> v;\n};\n\nint main() {\n"
                        "    std::cout << \"hi\" << std::endl;\n}\n")),
    ("source_code/csharp", ("using System;\nusing System.Linq;\n\nnamespace Shop\n{\n"
                           "    public class Cart\n    {\n        public int Total { get; set; "
                           "}\n        public static void Main(string[] args)\n        {\n"
                           "            Console.WriteLine(\"hi\");\n        }\n    }\n}\n")),
    ("source_code/go", ("package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\ntype T struct {\n"
                       "\tname string\n}\n\nfunc main() {\n\tf, err := os.Open(\"a\")\n"
                       "\tif err != nil {\n\t\tfmt.Println(err)\n\t}\n\tdefer f.Close()\n}\n")),
    ("source_code/rust", ("use std::collections::HashMap;\n\n#[derive(Debug)]\n"
                         "pub struct Item {\n    name: String,\n}\n\nimpl Item {\n"
                         "    pub fn new(name: &str) -> Self {\n"
                         "        let mut m = HashMap::new();\n        println!(\"{}\", name);\n"
                         "        Item { name: name.to_string() }\n    }\n}\n")),
    ("source_code/ruby", ("require 'json'\n\nclass Dog < Animal\n  attr_reader :name\n\n"
                         "  def initialize(name)\n    @name = name\n  end\n\n  def bark\n"
                         "    puts \"woof\"\n  end\nend\n")),
    ("source_code/php", ("<?php\nnamespace App\\Models;\n\nclass User {\n"
                        "    public function name() {\n        $x = $this->name;\n"
                        "        echo $x;\n    }\n}\n")),
    ("source_code/shell", ("#!/bin/bash\nset -euo pipefail\nfor f in *.txt; do\n  echo \"$f\"\n"
                          "done\n")),
    ("source_code/shell", ("set -e\nif [ -z \"$1\" ]; then\n  echo \"usage\"\n  exit 1\nfi\n"
                          "mkdir -p build\ncd build\nexport X=1\n")),
    ("source_code/powershell", ("param([string]$Name)\n$items = Get-ChildItem -Path C:\\temp\n"
                               "foreach ($i in $items) {\n  if ($i.Length -gt 10) { Write-Host "
                               "$i.Name }\n}\n")),
    ("source_code/sql", ("CREATE TABLE users (\n  id SERIAL PRIMARY KEY,\n"
                        "  name VARCHAR(80) NOT NULL\n);\nINSERT INTO users (name) VALUES "
                        "('a');\nSELECT * FROM users WHERE id = 1;\n")),
    ("source_code/sql", ("select u.name, count(*)\nfrom users u\n"
                        "join orders o on o.user_id = u.id\nwhere o.total > 10\n"
                        "group by u.name\norder by 2 desc\n")),
    ("source_code/css", ("body {\n  margin: 0;\n  font-family: sans-serif;\n}\n\n"
                        ".card:hover > a {\n  color: #333;\n}\n\n@media (max-width: 600px) {\n"
                        "  .card { display: none; }\n}\n")),
    ("source_code/scala", ("package a.b\n\nimport scala.collection._\n\ncase class P(x: Int)\n\n"
                          "object Main extends App {\n  def f(x: Int): Int = x + 1\n"
                          "  val y = f(2)\n  y match {\n    case 3 => println(y)\n  }\n}\n")),
    ("source_code/swift", ("import Foundation\n\nstruct User: Codable {\n    let name: String\n"
                          "    var age: Int?\n}\n\nfunc greet(_ user: User) -> String {\n"
                          "    guard let age = user.age else {\n        return \"\"\n    }\n"
                          "    return \"\\(age)\"\n}\n")),
    ("source_code/lua", ("local M = {}\n\nfunction M.add(a, b)\n  if a ~= nil then\n"
                        "    return a + b\n  end\nend\n\nreturn M\n")),
    ("source_code/perl", ("use strict;\nuse warnings;\n\nmy %count;\n"
                         "while (my $line = <STDIN>) {\n  $count{$1}++ if $line =~ /^(\\w+)/;\n"
                         "}\nprint \"$_\\n\" foreach sort keys %count;\n")),
    ("source_code/r", ("library(ggplot2)\nx <- c(1, 2, 3)\ndf <- data.frame(x = x, y = x^2)\n"
                      "f <- function(a) {\n  a + 1\n}\nggplot(df, aes(x, y)) + geom_point()\n")),
    ("source_code/haskell", ("module Main where\n\nimport qualified Data.Map as M\n\n"
                            "data Tree a = Leaf | Node a\n\nmain :: IO ()\nmain = do\n"
                            "  line <- getLine\n  putStrLn $ reverse line\n")),
    ("source_code/elixir", ("defmodule Greeter do\n  @moduledoc \"x\"\n  def greet(name) do\n"
                           "    name |> String.upcase() |> IO.puts()\n  end\nend\n")),
    ("source_code/makefile", ("CC = gcc\n\n.PHONY: all clean\n\nall: main.o\n"
                             "\t$(CC) -o app main.o\n\nclean:\n\trm -f app *.o\n")),
    ("source_code/protobuf", ("syntax = \"proto3\";\n\npackage a.b;\n\nmessage User {\n"
                             "  string name = 1;\n  repeated int32 ids = 2;\n}\n\n"
                             "service Users {\n  rpc Get(User) returns (User);\n}\n")),
    ("source_code/graphql", ("type Query {\n  user(id: ID!): User\n}\n\ntype User {\n  id: ID!\n"
                            "  name: String\n  posts: [Post!]!\n}\n")),
    ("source_code/diff", ("diff --git a/x b/x\nindex 1a2b..3c4d 100644\n--- a/x\n+++ b/x\n"
                         "@@ -1,2 +1,2 @@\n-old\n+new\n same\n")),
    ("source_code/python", "#!/usr/bin/env python3\nprint('hi')\n"),
    ("source_code/python", ("import asyncio\n\n\nasync def main() -> None:\n"
                           "    for n in range(3):\n        await asyncio.sleep(n)\n\n\n"
                           "if __name__ == '__main__':\n    asyncio.run(main())\n")),
    ("document/markdown", ("# Title\n\nSome *text* with a [link](https://example.com).\n\n- one\n"
                          "- two\n\n```python\nx = 1\n```\n")),
    ("document/markdown", ("## How to restart\n\n1. Stop the **server**\n2. Run `make up`\n\n"
                          "| a | b |\n|---|---|\n| 1 | 2 |\n")),
    ("document/restructuredtext", ("Title\n=====\n\nSee :ref:`other`.\n\n.. note:: careful\n\n"
                                  ".. code-block:: python\n\n   x = 1\n")),
    ("document/mail", ("From: a@example.com\nTo: b@example.com\nSubject: hello\n"
                      "Date: Sat, 14 Mar 2026 09:26:53 +0000\n\nHi there.\n")),
    ("text", ("It was a bright cold day in April, and the clocks were striking thirteen. People "
             "went home early.\n")),
    ("text", ("Dear all,\n\nthe meeting is moved to Friday. Please bring your notes, and "
             "something to eat.\n\nThanks,\nAda\n")),
    ("text", ("The quick brown fox; it jumps over the lazy dog. Then, as expected, it sleeps.\n"
             "Nothing else happened that day, they said.\n")),
    ("text", "hello\n"),
    ("text", ("Schöne Grüße aus Köln, das Wetter ist gut und wir bleiben noch ein paar Tage "
             "hier.\n")),
    ("text", "東京の天気は晴れです。明日は雨が降るでしょう。\n"),
    ("empty", "\n\n   \n"),
]  # fmt: skip


def _binary() -> Iterator[tuple[str, bytes]]:
    r = random.Random(5)
    png = (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I4sII5B", 13, b"IHDR", 4, 3, 8, 2, 0, 0, 0)
        + b"\0" * 40
    )
    yield "image/png", png
    yield "image/gif", b"GIF89a" + struct.pack("<HH", 4, 3) + b"\0" * 20
    yield (
        "image/jpeg",
        b"\xff\xd8\xff\xe0\0\x10JFIF\0"
        + b"\0" * 9
        + b"\xff\xc0\0\x11\x08\0\x03\0\x04"
        + b"\0" * 20,
    )
    yield "image/bmp", b"BM" + struct.pack("<IHHIIii", 70, 0, 0, 54, 40, 4, 3) + b"\0" * 50
    yield "image/webp", b"RIFF\x24\0\0\0WEBPVP8 " + b"\0" * 20
    yield "image/ico", b"\0\0\x01\0\x01\0\x10\x10" + b"\0" * 30
    yield "archive/gzip", gzip.compress(r.randbytes(2000))
    yield "archive/bzip2", bz2.compress(b"x" * 2000)
    yield "archive/xz", lzma.compress(b"x" * 2000)
    yield "archive/zstd", b"\x28\xb5\x2f\xfd" + r.randbytes(40)
    yield "archive/7z", b"7z\xbc\xaf\x27\x1c" + r.randbytes(40)
    yield "archive/rar", b"Rar!\x1a\x07\x01\x00" + r.randbytes(40)
    zipped, tarred = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as made:
        made.writestr("a.txt", "hello")
    with tarfile.open(fileobj=tarred, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("a.txt"), io.BytesIO())
    yield "archive/zip", zipped.getvalue()
    yield "archive/tar", tarred.getvalue()
    office = io.BytesIO()
    with zipfile.ZipFile(office, "w") as made:
        made.writestr("[Content_Types].xml", "<Types/>")
        made.writestr("word/document.xml", "<w/>")
    yield "document/docx", office.getvalue()
    yield "document/pdf", b"%PDF-1.7\n" + r.randbytes(100)
    yield "executable/elf", b"\x7fELF\x02\x01\x01" + r.randbytes(100)
    yield "executable/pe", b"MZ\x90\0\x03\0\0\0" + b"\0" * 100 + r.randbytes(100)
    yield "executable/wasm", b"\0asm\x01\0\0\0" + r.randbytes(20)
    yield "executable/java class", b"\xca\xfe\xba\xbe\0\0\0\x41" + r.randbytes(50)
    yield "database/parquet", b"PAR1" + r.randbytes(60)
    yield "media/ogg", b"OggS" + r.randbytes(60)
    yield "media/mp4", b"\0\0\0\x18ftypmp42" + r.randbytes(60)
    yield "capture/pcap", b"\xd4\xc3\xb2\xa1\x02\0\x04\0" + r.randbytes(40)
    sound = io.BytesIO()
    with wave.open(sound, "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(1)
        wav.setframerate(8000)
        wav.writeframes(b"\x80" * 50)
    yield "media/wav", sound.getvalue()
    yield "certificate/der", b"\x30\x82\x03\x00\x30\x82\x02\x00" + r.randbytes(0x300 - 4)
    yield "binary", r.randbytes(4000)
    yield "binary", zlib.compress(r.randbytes(1000))
    yield "empty", b""


def _database() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.db"
        connection = sqlite3.connect(path)
        connection.execute("create table t (a)")
        connection.commit()
        connection.close()
        return path.read_bytes()


_LIBRARY = Path(sysconfig.get_path("stdlib"))
_PACKAGES = Path(sysconfig.get_path("purelib"))
_HEADERS = Path(sysconfig.get_path("include"))
_MODULES = [
    "abc",
    "argparse",
    "ast",
    "bisect",
    "calendar",
    "cmd",
    "code",
    "codecs",
    "configparser",
    "contextlib",
    "copy",
    "csv",
    "dataclasses",
    "difflib",
    "dis",
    "enum",
    "fnmatch",
    "fractions",
    "functools",
    "getopt",
    "glob",
    "gzip",
    "heapq",
    "hmac",
    "inspect",
    "keyword",
    "linecache",
    "locale",
    "mimetypes",
    "netrc",
    "numbers",
    "operator",
    "pathlib",
    "pprint",
    "queue",
    "random",
    "sched",
    "secrets",
]
_FOUND = (
    (
        "source_code/c",
        _HEADERS,
        ("pyport.h", "pymem.h", "modsupport.h", "longobject.h", "object.h"),
    ),
    ("config/ini", _LIBRARY, ("idlelib/config-main.def", "idlelib/config-keys.def")),
    ("image/png", _LIBRARY, ("idlelib/Icons/idle_16.png",)),
    ("image/gif", _LIBRARY, ("idlelib/Icons/idle_16.gif",)),
    ("image/ico", _LIBRARY, ("idlelib/Icons/idle.ico",)),
    ("source_code/css", _PACKAGES, ("coverage/htmlfiles/style.css",)),
    ("source_code/javascript", _PACKAGES, ("coverage/htmlfiles/coverage_html.js",)),
    ("source_code/python", _PACKAGES, ("click/core.py", "rich/table.py", "yaml/scanner.py")),
)


def _installed() -> Iterator[Labelled]:
    """Files without their names: an ending would tell too much."""
    for name in _MODULES:
        path = (_LIBRARY / name).with_suffix(".py")
        if path.is_file():
            yield Labelled("source_code/python", path.read_bytes(), f"library {name}")
    for label, folder, names in _FOUND:
        for name in names:
            if (folder / name).is_file():
                yield Labelled(label, (folder / name).read_bytes(), f"installed {name}")


def _families() -> Iterator[Labelled]:
    for family in FAMILIES:
        text = "\n".join(one.line for one in generated(family, 60))
        yield Labelled("log", text.encode(), f"family {family.name}")


def corpus() -> list[Labelled]:
    """Everything, each sample with a name to tell it by."""
    written = [
        Labelled(label, text.encode(), textwrap.shorten(text, 40)) for label, text in WRITTEN
    ]
    binary = [Labelled(label, data, f"bytes {n}") for n, (label, data) in enumerate(_binary())]
    found = [*_families(), *_installed()]
    return [*written, *binary, Labelled("database/sqlite", _database(), "a database"), *found]
