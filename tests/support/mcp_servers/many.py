"""An MCP server of many tools: the first argument is their number, the second its instructions."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from json_lines import LineServer

WORDS = ["apples", "bridges", "candles", "dragons", "engines", "feathers", "gardens", "harbours"]


def definition(number: int) -> tuple[str, str]:
    word = f"{WORDS[number % len(WORDS)]}{number // len(WORDS) or ''}"
    return f"count_{word}", f"Count the {word} that are kept at a place. " + "It is exact. " * 6


if __name__ == "__main__":
    server = LineServer("many")
    server.instructions = sys.argv[2] if len(sys.argv) > 2 else ""
    for number in range(int(sys.argv[1])):
        name, description = definition(number)
        server.add_tool(
            lambda name=name, **values: f"{name} at {values['place']}: 7",
            name=name,
            description=description,
            inputSchema={
                "type": "object",
                "properties": {"place": {"type": "string", "description": "Where they are."}},
                "required": ["place"],
            },
        )
    server.serve()
