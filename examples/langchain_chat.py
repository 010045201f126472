"""LangChain against the server: a chain of prompt, model and parser; a stream; a typed answer.

pip install langchain-openai
python examples/langchain_chat.py [http://localhost:8000]
"""

from __future__ import annotations

import sys

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field


class Person(BaseModel):
    """Who is spoken of."""

    name: str = Field(max_length=40)
    age: int = Field(ge=0, le=120)


def main(url: str) -> None:
    # An empty name stands for the model that is served.
    model = ChatOpenAI(base_url=f"{url}/v1", api_key="none", model="", temperature=0, max_tokens=64)

    prompt = ChatPromptTemplate.from_messages([("user", "What is the capital of {country}?")])
    chain = prompt | model | StrOutputParser()
    print("chain:", chain.batch([{"country": "France"}, {"country": "Italy"}]))

    print("stream:", end=" ")
    for piece in chain.stream({"country": "Spain"}):
        print(piece, end="", flush=True)
    print()

    # The schema is enforced while the model writes, so the answer always parses.
    typed = model.with_structured_output(Person, method="json_schema")
    print("typed:", typed.invoke("Ada is 36 years old. Say so as JSON with name and age."))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000")
