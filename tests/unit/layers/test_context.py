from support.layer_context import layer_context


def test_prefix_grows():
    root = layer_context(prefix="")
    inner = root.at("model").at("layers.0").at("mlp")
    assert inner.prefix == "model.layers.0.mlp"
    assert root.prefix == ""
    assert inner.kernels is root.kernels


def test_parameters_need_no_gradient():
    parameter = layer_context().parameter(3, 2)
    assert parameter.shape == (3, 2)
    assert not parameter.requires_grad
