"""A function that clients offer and run, in words that the embedded model knows."""

QUESTION = "Use get_weather for Oslo."
AGAIN = "Use get_weather for Rome."
OSLO, ROME = "cloudy, 3 degrees", "a clear sky"


def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return {"Oslo": OSLO, "Rome": ROME}[city.strip()]
