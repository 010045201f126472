"""`octavo chat [MODEL]`: a conversation in the terminal, or one answer in a pipe."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from octavo.cli.client_options import ClientOptions, client_parser, parse_client, reach
from octavo.cli.console import Console
from octavo.cli.conversation import Conversation
from octavo.cli.server_client import Answer, ServerClient
from octavo.config.convert import convert, nearest
from octavo.config.flags import FlagParser
from octavo.config.options import option, options_of
from octavo.types.errors import ConfigError, OctavoError
from octavo.utils import envs

PATH = "/v1/chat/completions"
_SAMPLING = ("temperature", "top_p", "max_tokens")


@dataclass(frozen=True, kw_only=True)
class ChatOptions(ClientOptions):
    """How a conversation begins."""

    system_prompt: str | None = option(None, "What the model is told before anything else.")


def parser() -> FlagParser:
    """The flags of the command."""
    return client_parser(
        ChatOptions,
        "octavo chat",
        "Chat with a model in the terminal: /help lists what else can be typed, Ctrl-C stops an "
        "answer, Ctrl-D ends. What is piped in is one message: its answer is printed, and that "
        "is all.",
    )


def main(argv: Sequence[str]) -> int:
    """Talk until the person leaves; or answer what was piped in."""
    options, engine = parse_client(parser(), argv, ChatOptions)
    console = Console()
    question = once(options, console)
    with reach(options, engine) as (client, model):
        chat = Chat(client, model, options, console)
        if question is not None:
            chat.ask(question)
        else:
            chat.run()
    return 0


def once(options: ClientOptions, console: Console) -> str | None:
    """The one text to ask about: --quick, what is piped in, or both; None: a person will type.

    Raises ConfigError where there is none.
    """
    piped = console.read_all()
    text = "\n\n".join(part for part in (options.quick, piped.strip("\n")) if part)
    if text or console.interactive:
        return text or None
    raise ConfigError("there is nothing to ask: pipe a text in, or give --quick")


class Chat:
    """A conversation with a model; words that begin with a slash are for the program."""

    def __init__(
        self, client: ServerClient, model: str, options: ChatOptions, console: Console
    ) -> None:
        self.conversation = Conversation(options.system_prompt)
        self.sampling = options.sampling()
        self.model = model
        self._client = client
        self._console = console
        self._last = Answer()

    def run(self) -> None:
        """Read and answer until the end of input or /quit."""
        self._console.note(f"{self.model} at {self._client.url}; /help for help, Ctrl-D to leave")
        history = envs.cache_root() / "chat_history"
        with self._console.editing(history, [f"/{name}" for name in COMMANDS]):
            while True:
                try:
                    text = self._console.read(">>> ")
                except KeyboardInterrupt:
                    self._console.note("\n(Ctrl-D or /quit leaves)")
                    continue
                if text is None:
                    self._console.note("")
                    return
                try:
                    if not self._take(text):
                        return
                except OctavoError as error:
                    self._console.note(f"error: {error}")

    def ask(self, text: str) -> None:
        """Add a message and write its answer. Raises OctavoError; the message is then forgotten.

        Ctrl-C ends the answer where it is; what was written of it counts as said.
        """
        self.conversation.say("user", text)
        answer = self._last = Answer()
        body = {"model": self.model, "messages": self.conversation.messages(), **self.sampling}
        stopped = False
        try:
            with closing(self._client.stream(PATH, body, answer)) as pieces:
                for piece in pieces:
                    self._console.write(piece.text, piece.kind)
        except KeyboardInterrupt:
            if not self._console.interactive:
                raise
            stopped = True
        except OctavoError:
            self.conversation.take_back()
            raise
        finally:
            self._console.end()
        if stopped and not answer.text:
            self.conversation.take_back()
        else:
            self.conversation.say("assistant", answer.text)
        if stopped:
            self._console.note("(stopped)")
        elif answer.finish_reason == "length":
            self._console.note("(cut off: the most tokens that were asked for, or that fit)")

    def _take(self, text: str) -> bool:
        """Do what a line says; False: leave."""
        word, _, rest = text.strip().partition(" ")
        if not word:
            return True
        if not word.startswith("/"):
            self.ask(text)
            return True
        name = word[1:]
        if name in ("quit", "exit", "bye"):
            return False
        if name not in COMMANDS:
            guess = nearest(word, [f"/{name}" for name in COMMANDS]) or "; /help lists them"
            raise ConfigError(f"unknown command {word}{guess}")
        COMMANDS[name].run(self, rest.strip())
        return True

    def help(self, rest: str) -> None:
        """Print the commands."""
        width = max(len(f"{name} {c.argument}") for name, c in COMMANDS.items())
        lines = [f"/{f'{name} {c.argument}':<{width}}  {c.help}" for name, c in COMMANDS.items()]
        more = [
            'Several lines: end a line with \\, or write """ before the first and after the last.',
            "Ctrl-C stops an answer, Ctrl-D leaves, arrows recall what was typed.",
        ]
        self._console.note("\n".join([*lines, *more]))

    def new(self, rest: str) -> None:
        """Forget what was said, not the system prompt."""
        self.conversation = Conversation(self.conversation.system)

    def system(self, rest: str) -> None:
        """Set, clear or show the system prompt."""
        if rest:
            self.conversation.system = None if rest == "-" else rest
        self._console.note(f"system prompt: {self.conversation.system or 'none'}")

    def undo(self, rest: str) -> None:
        """Forget the last message and its answer."""
        taken = self.conversation.take_back()
        self._console.note("nothing was said yet" if taken is None else f"forgotten: {taken}")

    def retry(self, rest: str) -> None:
        """Ask for another answer to the last message."""
        taken = self.conversation.take_back()
        if taken is None:
            raise ConfigError("nothing was said yet")
        self.ask(taken)

    def set(self, rest: str) -> None:
        """Set, clear (-) or show a sampling parameter."""
        words = shlex.split(rest)
        if len(words) == 2:
            name, value = words
            if name not in _SAMPLING:
                raise ConfigError(f"unknown setting {name!r}; there are {', '.join(_SAMPLING)}")
            self.sampling.pop(name, None)
            if value != "-":
                self.sampling[name] = convert(options_of(ChatOptions, "chat")[name], value)
        elif words:
            raise ConfigError("write /set NAME VALUE, for example /set temperature 0.2")
        shown = " ".join(f"{name}={self.sampling.get(name, 'default')}" for name in _SAMPLING)
        self._console.note(shown)

    def choose_model(self, rest: str) -> None:
        """Change or list the models."""
        names = self._client.models()
        if rest and rest not in names:
            raise ConfigError(f"unknown model {rest!r}; there are {', '.join(names)}")
        self.model = rest or self.model
        self._console.note("\n".join(f"{'*' if n == self.model else ' '} {n}" for n in names))

    def save(self, rest: str) -> None:
        """Write the conversation to a file."""
        self.conversation.save(_file(rest))
        self._console.note(f"{len(self.conversation.messages())} messages in {rest}")

    def load(self, rest: str) -> None:
        """Go on with a saved conversation."""
        self.conversation = Conversation.load(_file(rest))
        self._console.note(f"{len(self.conversation.messages())} messages from {rest}")

    def stats(self, rest: str) -> None:
        """Tokens and speed of the last answer."""
        self._console.note(self._last.figures() or "there is no whole answer yet")


@dataclass(frozen=True)
class Command:
    """Something a person can type besides messages."""

    run: Callable[[Chat, str], None]
    argument: str
    help: str


COMMANDS = {
    "help": Command(Chat.help, "", "this list"),
    "new": Command(Chat.new, "", "begin again; the system prompt stays"),
    "retry": Command(Chat.retry, "", "another answer to the last message"),
    "undo": Command(Chat.undo, "", "forget the last message and its answer"),
    "system": Command(Chat.system, "[TEXT]", "show the system prompt, or set it; - clears it"),
    "set": Command(Chat.set, "[NAME VALUE]", "show or set temperature, top_p, max_tokens"),
    "model": Command(Chat.choose_model, "[NAME]", "list the server's models, or take another"),
    "save": Command(Chat.save, "FILE", "write the conversation as JSON messages"),
    "load": Command(Chat.load, "FILE", "go on with a saved conversation"),
    "stats": Command(Chat.stats, "", "tokens and speed of the last answer"),
    "quit": Command(Chat.help, "", "leave (Ctrl-D does, too)"),
}


def _file(name: str) -> Path:
    if not name:
        raise ConfigError("which file? Write its name after the command")
    return Path(name).expanduser()
