#!/usr/bin/env bash
# Runs a real Claude Code with the tools of a real `attache mcp`. A stub on loopback replaces the model and says which tool to
# call, so nothing leaves this machine and no account is needed.
#
#   cargo build -p attache && cargo build -p attache-adapter --example stub-model
#   tests/mcp/claude.sh target/debug/attache target/hosts/bin/claude        (./test installs Claude Code there)
#
# Exits with 0 and prints one line per tool if both tools returned the expected answer.
set -euo pipefail
attache=$(realpath "$1")
claude=$(realpath -s "$2")
stub=$(dirname "$attache")/examples/stub-model
work=$(mktemp -d)
started=()
finish() {
    for process in "${started[@]}"; do kill "$process" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}
trap finish EXIT

export HOME=$work A2A_HOME=$work/.a2a AWCP_HOME=$work/.AWCP
cd "$work"
"$attache" up --listen 127.0.0.1:0 --ready-file "$work/up" >"$work/up.log" 2>&1 &
started+=($!)
"$stub" "$work/model" >/dev/null &
started+=($!)
for _ in $(seq 300); do [ -s "$work/up" ] && [ -s "$work/model" ] && break; sleep 0.1; done
url=$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["url"])' "$work/up")

ANTHROPIC_BASE_URL=$(cat "$work/model")
export ANTHROPIC_BASE_URL ANTHROPIC_API_KEY=stub
export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 DISABLE_AUTOUPDATER=1 CLAUDE_CODE_MAX_RETRIES=1
# The same as a person would do: one command, then the client finds the server on its own.
"$attache" mcp install --for claude 2>/dev/null

ask() { # ask TOOL JSON EXPECTED
    timeout 120 "$claude" -p "CALL:mcp__attache__$1 $2" --output-format json --no-session-persistence \
        --allowedTools "mcp__attache__$1" </dev/null >"$work/claude.log" 2>&1 || { cat "$work/claude.log"; exit 1; }
    if ! answered "$3"; then
        echo "$1 did not answer \`$3\`:"
        cat "$work/claude.log"
        exit 1
    fi
    echo "$1: ok"
}

# Whether the last tool result sent to the model is a success that contains this text.
answered() { # answered EXPECTED
    python3 - "$ANTHROPIC_BASE_URL/__requests" "$1" <<'END'
import json, sys, urllib.request
asked = [r["body"]["messages"] for r in json.load(urllib.request.urlopen(sys.argv[1])) if "messages" in (r["body"] or {})]
blocks = [b for m in asked[-1] if isinstance(m["content"], list) for b in m["content"] if b["type"] == "tool_result"]
sys.exit(not (blocks and not blocks[-1].get("is_error") and sys.argv[2] in json.dumps(blocks[-1]["content"])))
END
}

ask list_agents '{}' "$url/a2a/local"
ask remote_agent '{"task":"echo the answer is $((6*7))","agent_url":"local"}' 'the answer is 42'
