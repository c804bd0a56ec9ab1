#!/bin/sh
# The command `llm` (pip install llm): its models are named in extra-openai-models.yaml.
#
#     pip install llm
#     sh examples/llm_cli.sh [http://127.0.0.1:8000]
#
# For everyday use write the same file into the folder of `dirname "$(llm logs path)"`.
set -eu
address=${1:-${OPENAI_BASE_URL:-http://127.0.0.1:8000}}
LLM_USER_PATH=$(mktemp -d)
export LLM_USER_PATH
trap 'rm -rf "$LLM_USER_PATH"' EXIT

model=$(curl -s "${address%/v1}/v1/models" | sed 's/.*"data":\[{"id":"\([^"]*\)".*/\1/')
cat >"$LLM_USER_PATH/extra-openai-models.yaml" <<YAML
- model_id: octavo
  model_name: $model
  api_base: ${address%/v1}/v1
  supports_schema: true
  supports_tools: true
YAML
llm keys set openai --value none

echo "streamed: $(llm -m octavo -o temperature 0 -o max_tokens 24 'Name three colours.')"
echo "whole:    $(llm -m octavo --no-stream -o temperature 0 -o max_tokens 24 'Name three colours.')"
echo "schema:   $(echo 'Ada is 36 years old.' | llm -m octavo -o temperature 0 -o max_tokens 64 --schema 'name, age int')"
echo "logged:   $(llm logs list -n 1 --json | grep -c '"model": "octavo"')"
