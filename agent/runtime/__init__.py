"""Loading, unloading and prefetching the model that all turns of the process share."""
