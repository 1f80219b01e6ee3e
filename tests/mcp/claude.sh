#!/usr/bin/env bash
# Has a real Claude Code use the tools of a real `attache mcp`. Instead of a model, a stub on loopback says which tool to call,
# so that nothing leaves this machine and no account is needed.
#
#   npm install --prefix DIR @anthropic-ai/claude-code        (Node 22 or later; 2.1.325 is what was last tried)
#   tests/mcp/claude.sh target/debug/attache DIR/node_modules/.bin/claude
#
# Ends with 0 and one line per tool when both tools answered as they should.
set -euo pipefail
attache=$(realpath "$1")
claude=$(realpath -s "$2")
here=$(dirname "$(realpath "$0")")
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
python3 "$here/stub_model.py" "$work/port" "$work/model.log" &
started+=($!)
for _ in $(seq 300); do [ -s "$work/up" ] && [ -s "$work/port" ] && break; sleep 0.1; done
url=$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["url"])' "$work/up")

export ANTHROPIC_BASE_URL=http://127.0.0.1:$(cat "$work/port") ANTHROPIC_API_KEY=stub
export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 DISABLE_AUTOUPDATER=1 CLAUDE_CODE_MAX_RETRIES=1
# What a person does: one command, then the client finds the server by itself.
"$attache" mcp install --for claude 2>/dev/null

ask() { # ask TOOL JSON EXPECTED
    : >"$work/model.log"
    timeout 120 "$claude" -p "CALL mcp__attache__$1 $2" --output-format json --no-session-persistence \
        --allowedTools "mcp__attache__$1" </dev/null >"$work/claude.log" 2>&1 || { cat "$work/claude.log"; exit 1; }
    if ! grep -q '"is_error": false' "$work/model.log" || ! grep -qF "$3" "$work/model.log"; then
        echo "$1 did not answer \`$3\`:"
        cat "$work/model.log" "$work/claude.log"
        exit 1
    fi
    echo "$1: as it should be"
}

ask list_agents '{}' "$url/a2a/local"
ask remote_agent '{"task":"echo the answer is $((6*7))","agent_url":"local"}' 'the answer is 42'
