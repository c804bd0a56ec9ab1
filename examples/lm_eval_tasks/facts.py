"""How an answer that the model wrote is judged."""


def contains_answer(doc: dict, results: list[str]) -> dict[str, float]:
    """1 where the right word is in it."""
    right = doc["choices"][doc["answer"]]
    return {"contains_answer": float(right.lower() in results[0].lower())}
