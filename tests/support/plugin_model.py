"""A model that octavo doesn't know, as a plug-in package would bring it."""

from octavo.models.common.decoder import DecoderCausalLM


class PluginModel(DecoderCausalLM):
    """Llama's layers under another name."""
