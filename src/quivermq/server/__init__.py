"""The broker: the engine served to the network over HTTP. The only layer, beside the client, with async."""
