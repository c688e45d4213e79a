"""The local engine: llama.cpp on a thread of its own."""
