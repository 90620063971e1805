"""Chat templates in the styles that models have, each with what the next one does in another way."""

_TURNS = "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
_PROMPT = "{% if add_generation_prompt %}<|assistant|>{% endif %}"

STYLES: dict[str, str] = {
    "marks": _TURNS + _PROMPT,
    "chatml": """{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] | string + '<|im_end|>' + '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}""",
    "blocks on lines of their own": """
{% for message in messages %}
    {% if message.role == 'user' %}
        User: {{ message.content }}
    {% else %}
        {{ message.role | title }}: {{ message.content }}
    {% endif %}
{% endfor %}
    {% if add_generation_prompt %}Assistant:{% endif %}

""",
    "brackets": """{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}
{{ '[INST] ' + (message['content'] or '') | string + ' [/INST]' }}
{% elif message['role'] == 'assistant' %}{{ message['content'] ~ eos_token }}{% endif %}{% endfor %}""",
    "alternation is demanded": """{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('roles must alternate user/assistant/user/assistant/...') }}
{% endif %}
{{ loop.index }}.{{ message.role }}={{ message.content }}{% endfor %}""",
    "the system message is merged": """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}
{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}
{% set system_message = false %}{% endif %}
{% for message in loop_messages %}{% if loop.index0 == 0 and system_message %}
{% set content = '<<SYS>>\\n' ~ system_message ~ '\\n<</SYS>>\\n\\n' ~ message['content'] %}
{% else %}{% set content = message['content'] %}{% endif %}{{ content }}|{% endfor %}""",
    "a namespace keeps what was seen": """{% set ns = namespace(found=false, count=0) %}
{% for message in messages %}{% if message.role == 'tool' %}{% set ns.found = true %}{% endif %}
{% set ns.count = ns.count + 1 %}{% endfor %}{{ ns.found }}/{{ ns.count }}""",
    "special tokens": "{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ pad_token }}{{ sep_token }}{{ cls_token }}"
    "{{ mask_token }}{{ image_token }}" + _TURNS,
    "tools as json": "{% if tools %}{{ tools | tojson }}{% else %}{{ tools is none }}{% endif %}" + _TURNS,
    "tools indented": "{% for tool in tools or [] %}{{ tool | tojson(indent=4) }}\n\n{% endfor %}" + _TURNS,
    "tools in ascii": "{{ tools | tojson(ensure_ascii=True) }}{{ messages[0] | tojson(ensure_ascii=False) }}",
    "tools compact and sorted": "{{ tools | tojson(separators=(',', ':'), sort_keys=true) }}",
    "json by places": "{{ messages | tojson(true, 1, (' , ', ' : '), false) }}",
    "json in a chain of filters": "{{ messages | map(attribute='content') | list | tojson | replace('\"', '`') }}",
    "calls": """{% for message in messages %}{% if message.tool_calls %}
{% for call in message.tool_calls %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}{% elif message.role == 'tool' %}
<tool_response>{{ message.content }}</tool_response>{% else %}{{ message.content }}{% endif %}{% endfor %}""",
    "arguments one by one": """{% for message in messages %}{% for call in message.tool_calls | default([]) %}
{{ call.function.name }}({% for name, value in call.function.arguments.items() %}
{{ name }}={{ value | tojson }}{{ ', ' if not loop.last }}{% endfor %}){% endfor %}{% endfor %}""",
    "calls that are defined": """{% for message in messages %}{{ message.tool_calls is defined }},
{{ message.content is none }},{{ message.content is defined }},{{ 'name' in message }};{% endfor %}""",
    "generation": """{% for message in messages %}{% if message.role == 'assistant' %}
{% generation %}{{ message.content }}{{ eos_token }}{% endgeneration %}
{% else %}{{ message.content }}{% endif %}{% endfor %}"""
    + _PROMPT,
    "generation with its own spaces": """{% for message in messages -%}
    {%- generation -%}
    {% set text = message.content %}
    {{ text }}
    {%- endgeneration %}
{{ text is defined }}
{% endfor %}""",
    "parts": """{% for message in messages %}{{ message.role }}:
{% if message.content is string %}{{ message.content }}
{% else %}{% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}
{% elif part.type == 'image' %}<image>{% endif %}{% endfor %}{% endif %}{% endfor %}""",
    "loops are left": """{% for message in messages %}{% if loop.index > 2 %}{% break %}{% endif %}
{% if message.role == 'system' %}{% continue %}{% endif %}{{ message.content }}{% endfor %}""",
    "macros": """{% macro turn(role, text) %}<{{ role }}>{{ caller() if caller else text }}</{{ role }}>{% endmacro %}
{% for message in messages %}{{ turn(message.role, message.content) }}{% endfor %}
{% call turn('note', '') %}{{ messages | length }}{% endcall %}""",
    "macros go through everything": """{% macro told(value) %}{% if value is mapping %}
{% for key, each in value | items %}{{ key }}:{{ told(each) }},{% endfor %}{% elif value is string %}"{{ value }}"
{% elif value is iterable %}[{% for each in value %}{{ told(each) }}{% endfor %}]
{% else %}{{ value }}{% endif %}{% endmacro %}{{ told(messages) }}{{ told(tools) }}{{ told(12345678901) }}""",
    "groups and pieces": """{% for role, some in messages | groupby('role') %}{{ role }}={{ some | length }};
{% endfor %}{% set comma = joiner(', ') %}{% for message in messages | selectattr('role', 'equalto', 'user') %}
{{ comma() }}{{ loop.previtem.content if loop.previtem }}|{{ message.content }}{% endfor %}
{{ '%s-%s' | format(messages | length, tools is defined) }}{% filter upper %}{{ messages[0].content }}
{% endfilter %}""",
    "the last user message counts": """{% set ns = namespace(last=-1) %}
{% for message in messages[::-1] %}{% set index = messages | length - 1 - loop.index0 %}
{% if ns.last < 0 and message.role == 'user' %}{% set ns.last = index %}{% endif %}{% endfor %}
{% for message in messages %}{{ '*' if loop.index0 == ns.last }}{{ message.content }};{% endfor %}""",
    "thoughts are cut": """{% for message in messages %}{% set text = message.content | default('', true) %}
{% if '</think>' in text %}{% set text = text.split('</think>')[-1].lstrip('\\n') %}{% endif %}
{{ message.role }}>{{ text.strip() }}{% endfor %}"""
    + _PROMPT,
    "reasoning": """{% for message in messages %}{% if message.reasoning_content %}
<think>{{ message.reasoning_content }}|{{ message.thinking }}</think>{% endif %}{{ message.content }}{% endfor %}""",
    "switches": """{% if enable_thinking is defined and enable_thinking is false %}/no_think {% endif %}
{{ reasoning_effort | default('medium') }}{{ depth or 0 }}{{ documents is none }}"""
    + _TURNS,
    "documents": """{% if documents %}{% for document in documents %}Document {{ loop.index }}
Title: {{ document['title'] }} Text: {{ document['text'] | trim }}{% endfor %}{% endif %}"""
    + _TURNS,
    "text is trimmed": "{% for message in messages %}{{ message.content | trim }}\n{% endfor %}" + _PROMPT,
    "text is cased and cut": """{% for message in messages %}
{{ (message.content | default('', true) | string)[:5] | upper }}
{{ message.content | default('') | length }}{{ message.role | capitalize }}{% endfor %}""",
    "html stays as it is": "{% for m in messages %}{{ m.content | e }}{{ m.content }}<&>{% endfor %}",
    "the year": "{{ strftime_now('%Y') }}{{ strftime_now('%Z') }}" + _TURNS,
    "dictionaries": """{% set names = dict(user='U', assistant='A') %}
{% for message in messages %}{{ names.get(message.role, '?') }}{{ message.items() | list | length }}{% endfor %}""",
    "keys are sorted": """{% for message in messages %}
{% for key, value in message | dictsort %}{{ key }}={{ value }};{% endfor %}{% endfor %}""",
    "what the sandbox forbids": "{{ messages.append(1) }}",
    "what is not there": "{{ messages[0].nothing.at.all }}",
    "filters that are not there": "{{ messages | nothing }}",
    "no end": "{% for message in messages %}",
}
"""Name → template."""
