"""The remote engine: a server (llama-server, vLLM) runs the model."""
