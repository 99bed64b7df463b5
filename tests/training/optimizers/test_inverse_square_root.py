import keras
import pytest

from keras_transformer.training import InverseSquareRoot


@pytest.mark.parametrize("step", [0, 1, 1999, 3998, 3999, 4000, 8000, 99_999])
def test_is_equation_3_of_the_paper(step):
    number = step + 1  # The paper's steps begin at 1.
    expected = 512**-0.5 * min(number**-0.5, number * 4000**-1.5)
    assert float(InverseSquareRoot(4000, hidden_dim=512)(step)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("step, rate", [(0, 0.05), (4, 0.25), (9, 0.5), (39, 0.25), (159, 0.125)])
def test_peak_form(step, rate):
    schedule = InverseSquareRoot(10, peak_learning_rate=0.5)
    assert float(schedule(step)) == pytest.approx(rate, rel=1e-6)


def test_forms_agree_and_scale():
    by_width = InverseSquareRoot(25, hidden_dim=64, scale=2.0)
    by_peak = InverseSquareRoot(25, peak_learning_rate=2 / (64 * 25) ** 0.5)
    assert [float(by_width(step)) for step in (3, 24, 70)] == pytest.approx(
        [float(by_peak(step)) for step in (3, 24, 70)]
    )


def test_takes_integer_tensors_and_survives_config():
    schedule = InverseSquareRoot(4, hidden_dim=4, scale=3.0)
    again = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(schedule))
    assert float(again(keras.ops.convert_to_tensor(3, "int64"))) == pytest.approx(3 * 16**-0.5)
    assert again.get_config() == schedule.get_config()


@pytest.mark.parametrize(
    "arguments, name",
    [
        ({"warmup_steps": 0, "hidden_dim": 4}, "warmup_steps"),
        ({}, "exactly one"),
        ({"hidden_dim": 4, "peak_learning_rate": 1.0}, "exactly one"),
        ({"hidden_dim": 0}, "hidden_dim"),
        ({"peak_learning_rate": -1.0}, "peak_learning_rate"),
        ({"hidden_dim": 4, "scale": 0.0}, "scale"),
    ],
)
def test_refuses(arguments, name):
    with pytest.raises(ValueError, match=name):
        InverseSquareRoot(**arguments)
