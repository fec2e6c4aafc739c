"""A model of Hugging Face's library, with replaced tables, is saved and loaded."""

import copy

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="pip install 'tableless[libraries]'")

from tableless import load_replaced, replace_embeddings, save_replaced, tune  # noqa: E402


def test_a_replaced_model_is_loaded_into_one_built_from_its_config(tmp_path):
    config = transformers.BertConfig(
        vocab_size=500, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    model = transformers.BertModel(config).eval()
    (table,) = replace_embeddings(model, "1/2", min_rows=500, exclude=["embeddings.position_embeddings"], distil=False)
    assert table.name == "embeddings.word_embeddings"
    model.config.save_pretrained(tmp_path)
    save_replaced(model, tmp_path)
    built = transformers.AutoModel.from_config(transformers.AutoConfig.from_pretrained(tmp_path)).eval()
    ids = torch.tensor([[1, 2, 3, 0], [7, 499, 7, 5]])
    assert torch.equal(load_replaced(built, tmp_path)(ids).last_hidden_state, model(ids).last_hidden_state)


SMALL = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
TIED = {
    "BERT": lambda: transformers.BertForMaskedLM(
        transformers.BertConfig(vocab_size=500, max_position_embeddings=64, **SMALL)
    ),
    "GPT-2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=500, n_positions=64, n_embd=16, n_layer=1, n_head=2)
    ),
    "T5": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=500, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0
        )
    ),
}


def batch_for(name):
    ids = torch.tensor([[1, 2, 3, 0], [7, 499, 7, 5]])
    batch = {"input_ids": ids, "attention_mask": (ids > 0).long()}
    return batch | {"decoder_input_ids": ids} if name == "T5" else batch


@pytest.mark.parametrize("name", TIED)
@pytest.mark.filterwarnings("ignore::tableless.embedding.PoorFitWarning")
def test_a_language_model_with_a_tied_output_is_replaced_tuned_saved_and_loaded(name, tmp_path):
    torch.manual_seed(0)
    model = TIED[name]().eval()
    before, batch = copy.deepcopy(model), batch_for(name)
    (table,) = replace_embeddings(model, "1/1", scheme="full", min_rows=500)
    assert len(table.names) > 1, "the table and the output layer"
    torch.testing.assert_close(model(**batch).logits, before(**batch).logits)
    model = copy.deepcopy(before)
    replace_embeddings(model, "1/4", scheme="low-rank", min_rows=500)
    done = tune(model, before, [batch], epochs=30, learning_rate=0.001)
    assert done.losses[-1] < 0.9 * done.losses[0]
    save_replaced(model, tmp_path)
    loaded = load_replaced(TIED[name]().eval(), tmp_path)
    assert torch.equal(loaded(**batch).logits, model(**batch).logits)
    loss = model.train()(**batch, labels=batch["input_ids"]).loss
    loss.backward()
    assert all(own.grad is not None for own in model.get_input_embeddings().scheme.parameters())


@pytest.mark.filterwarnings("ignore::tableless.embedding.PoorFitWarning")
def test_the_example_keeps_more_neighbours_when_the_model_is_tuned():
    pytest.importorskip("polars")
    from examples import replace_in_transformers as example

    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(vocab_size=500, max_position_embeddings=64, **SMALL)).eval()
    torch.nn.init.normal_(model.embeddings.word_embeddings.weight)
    ids = torch.randint(1, 500, (12, 32, 6))
    batches = [{"input_ids": own, "attention_mask": (own > 20).long()} for own in ids]
    titles = example.Titles(batches[:8], batches[8:10], batches[10:])
    found = example.measure(model, titles, "1/2", scheme="bloom", min_rows=500, epochs=60)
    assert found["as trained"].recall == 1
    assert found["replaced"].recall < found["tuned"].recall
    assert found["tuned"].bytes <= found["as trained"].bytes // 2
