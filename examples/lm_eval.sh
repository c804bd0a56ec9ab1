#!/bin/sh
# EleutherAI's evaluation harness against the server, with a small task that lies beside this file.
#
#     pip install 'lm-eval[api]'
#     octavo serve --enable-tokenizer-info-endpoint
#     sh examples/lm_eval.sh [http://127.0.0.1:8000]
#
# The harness counts tokens with the server's own tokenizer (tokenizer_backend=remote).
set -eu
address=${1:-${OPENAI_BASE_URL:-http://127.0.0.1:8000}}
address=${address%/v1}
here=$(cd "$(dirname "$0")" && pwd)
model=$(curl -s "$address/v1/models" | sed 's/.*"data":\[{"id":"\([^"]*\)".*/\1/')
cd "$here/lm_eval_tasks" # where the tasks find their data
common="model=$model,num_concurrent=4,max_retries=1,tokenized_requests=False"

lm_eval --model local-completions --tasks facts_choice --include_path . \
  --model_args "$common,base_url=$address/v1/completions,tokenizer_backend=remote"
lm_eval --model local-completions --tasks facts_write --include_path . \
  --model_args "$common,base_url=$address/v1/completions,tokenizer_backend=remote"
lm_eval --model local-chat-completions --tasks facts_write --include_path . --apply_chat_template \
  --model_args "$common,base_url=$address/v1/chat/completions,tokenizer_backend=remote"
