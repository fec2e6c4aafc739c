"""A model of Hugging Face's library, with replaced tables, is saved and loaded."""

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="pip install 'tableless[libraries]'")

from tableless import load_replaced, replace_embeddings, save_replaced  # noqa: E402


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
