"""A demonstration MCP server over stdio: ``python -m tools.demo.server weather|time|notes``."""

import json
import sys
import zlib
from datetime import datetime
from zoneinfo import ZoneInfo, available_timezones

import mcp.types as T
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

READS = T.ToolAnnotations(read_only_hint=True, open_world_hint=False)
SKIES = ("sunny", "cloudy", "light rain", "windy", "clear", "fog")


def weather() -> MCPServer:
    server = MCPServer("weather")

    @server.tool(annotations=READS, structured_output=False)
    def get_weather(city: str) -> str:
        """Get the weather of a city."""
        number = zlib.crc32(city.strip().lower().encode())
        return f"{number % 30} °C, {SKIES[number // 30 % len(SKIES)]}"

    return server


def time() -> MCPServer:
    """The server ``time``; its results are those of mcp-server-time."""
    server = MCPServer("time")

    @server.tool(annotations=READS, structured_output=False)
    def get_current_time(timezone: str) -> str:
        """Get current time in a specific timezone"""
        zone = find_zone(timezone)
        if zone is None:
            raise ToolError(f"there is no timezone {timezone}")
        now = datetime.now(ZoneInfo(zone))
        result = {
            "timezone": zone,
            "datetime": now.isoformat(timespec="seconds"),
            "day_of_week": now.strftime("%A"),
            "is_dst": bool(now.dst()),
        }
        return json.dumps(result, indent=2)

    return server


def find_zone(name: str) -> str | None:
    """The IANA time zone of this name, or of the city of this name; None if there is none."""
    wanted = name.strip().lower().replace(" ", "_")
    zones = sorted(available_timezones())
    exact = [zone for zone in zones if zone.lower() == wanted]
    cities = [zone for zone in zones if zone.lower().rpartition("/")[2] == wanted]
    return next(iter(exact + cities), None)


def notes() -> MCPServer:
    server = MCPServer("notes")
    lines: list[str] = []

    @server.tool(structured_output=False)
    def add(text: str) -> str:
        """Add a note."""
        lines.append(text)
        return "noted"

    @server.tool(annotations=READS, structured_output=False)
    def show() -> str:
        """Show all notes."""
        return "\n".join(lines) or "there are no notes"

    return server


SERVERS = {"weather": weather, "time": time, "notes": notes}

if __name__ == "__main__":
    SERVERS[sys.argv[1]]().run()
