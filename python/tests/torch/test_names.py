"""TorchRec's names, paths and arguments in tessera.torch, and the one sentence of what has no counterpart."""

import importlib
import importlib.util
import inspect
import pickle
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import tessera  # noqa: E402
import tessera.torch as tt  # noqa: E402

PLACES = {  # of what programs import
    "": "EmbeddingBagCollection EmbeddingBagConfig EmbeddingCollection EmbeddingConfig JaggedTensor KeyedJaggedTensor "
    "KeyedTensor PoolingType DataType",
    "modules.embedding_configs": "EmbeddingBagConfig EmbeddingConfig PoolingType DataType",
    "modules.embedding_modules": "EmbeddingBagCollection EmbeddingCollection",
    "sparse.jagged_tensor": "JaggedTensor KeyedJaggedTensor KeyedTensor",
    "distributed": "DistributedModelParallel TrainPipelineBase TrainPipelineSparseDist EvalPipelineSparseDist "
    "ModuleSharder ShardingEnv",
    "distributed.model_parallel": "DistributedModelParallel",
    "distributed.embeddingbag": "EmbeddingBagCollectionSharder ShardedEmbeddingBagCollection",
    "distributed.embedding": "EmbeddingCollectionSharder ShardedEmbeddingCollection",
    "distributed.embedding_types": "EmbeddingComputeKernel",
    "distributed.types": "ShardingEnv ShardingPlan ShardingType ModuleSharder",
    "distributed.planner": "EmbeddingShardingPlanner ParameterConstraints Topology",
    "distributed.planner.storage_reservations": "HeuristicalStorageReservation",
    "distributed.sharding_plan": "table_wise row_wise column_wise table_row_wise grid_shard data_parallel apply_to_all "
    "construct_module_sharding_plan get_default_sharders",
    "distributed.train_pipeline": "TrainPipelineBase TrainPipelineSparseDist EvalPipelineSparseDist",
    "optim": "SGD Adagrad Adam LAMB LarsSGD PartialRowWiseAdam PartialRowWiseLAMB RowWiseAdagrad CombinedOptimizer "
    "KeyedOptimizerWrapper",
    "optim.keyed": "CombinedOptimizer KeyedOptimizerWrapper",
    "optim.apply_optimizer_in_backward": "apply_optimizer_in_backward",
    "optim.optimizers": "in_backward_optimizer_filter",
    "inference.modules": "quantize_embeddings",
    "quant.embedding_modules": "EmbeddingBagCollection EmbeddingCollection",
}
SGD = {"optimizer": tt.EmbOptimType.EXACT_SGD, "learning_rate": 0.5}


def bags(**more):
    table = tt.EmbeddingBagConfig(num_embeddings=6, embedding_dim=4, name="a", feature_names=["x"])
    return tt.EmbeddingBagCollection(tables=[table], **more)


@pytest.mark.parametrize("path", PLACES)
def test_a_name_is_where_torchrec_has_it(path):
    module = importlib.import_module(f"tessera.torch.{path}" if path else "tessera.torch")
    for name in PLACES[path].split():
        found = getattr(module, name)
        assert found is getattr(tt, "Quant" + name if path.startswith("quant") else name)


def _taken(of):
    found = list(inspect.signature(of).parameters.values())
    places = [p.name for p in found if p.kind is p.POSITIONAL_OR_KEYWORD]
    return places, any(p.kind is p.VAR_KEYWORD for p in found)


ENUMS = "PoolingType DataType ShardingType EmbeddingComputeKernel".split()


@pytest.mark.parametrize("path", [path for path in PLACES if not path.startswith("quant")])
def test_arguments_are_torchrecs(path):
    """Each is taken by its name, and those that are taken by place stand where TorchRec has them."""
    pytest.importorskip("torchrec")
    theirs_module = importlib.import_module(f"torchrec.{path}" if path else "torchrec")
    for name in PLACES[path].split():
        theirs, ours = getattr(theirs_module, name), getattr(tt, name)
        if name in ENUMS:
            assert set(ours.__members__) - set(theirs.__members__) <= {"TABLE_COLUMN_WISE"}
        elif name == "ModuleSharder" or name.startswith("Sharded"):
            continue  # made by nobody
        elif not issubclass(ours if inspect.isclass(ours) else int, tt.SGD.__base__):
            same_arguments(theirs, ours)


def same_arguments(theirs, ours):
    wanted, taken = (list(inspect.signature(of).parameters.values()) for of in (theirs, ours))
    open_ended = any(p.kind is p.VAR_KEYWORD for p in taken)
    names = [p.name for p in wanted if p.kind is p.POSITIONAL_OR_KEYWORD]
    by_name = {p.name for p in taken}
    assert open_ended or set(names) <= by_name, (ours, set(names) - by_name)
    by_place = [p.name for p in taken if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert by_place == names[: len(by_place)] or not names, (ours, by_place, names)


def test_what_has_no_counterpart_raises_a_sentence():
    def refused(function, named):
        with pytest.raises(NotImplementedError) as told:
            function()
        text = str(told.value)
        assert named in text and "no counterpart in tessera.torch" in text and "\n" not in text, text

    model = tt.DistributedModelParallel(torch.nn.ModuleDict({"e": bags(device="meta")}))
    sharder, planner = tt.EmbeddingBagCollectionSharder(SGD), tt.EmbeddingShardingPlanner()
    refused(lambda: tt.GreedyProposer, "GreedyProposer")
    refused(lambda: importlib.import_module("tessera.torch.distributed.planner").EmbeddingEnumerator, "Enumerator")
    for part in ("enumerator", "proposer", "partitioner", "performance_model", "stats", "callbacks", "plan_loader"):
        refused(lambda name=part: tt.EmbeddingShardingPlanner(**{name: [object()]}), part)
    refused(lambda: planner.get_search_space(), "get_search_space")
    refused(lambda: model.reshard("e", {}), "reshard")
    refused(lambda: model.get_delta_tracker(), "get_delta_tracker")
    refused(lambda: sharder.reshard(bags(), {}), "reshard")
    refused(lambda: tt.EmbeddingBagCollectionSharder(SGD, qcomm_codecs_registry={"a": 1}), "qcomm_codecs_registry")
    refused(lambda: tt.Topology(2, "cpu", intra_host_bw=3.0), "intra_host_bw")
    refused(lambda: tt.Topology(2, "cpu", pod_size=2), "pod_size")
    refused(lambda: tt.ParameterConstraints(cache_params=object()), "cache_params")
    refused(lambda: tt.table_wise(0, compute_kernel="fused_uvm_caching"), "fused_uvm_caching")
    refused(lambda: tt.table_wise(0, device="cuda"), "device")
    refused(lambda: tt.row_wise(([3, 3], "cpu")), "sizes_placement")
    refused(lambda: tt.column_wise(size_per_rank=[1, 3]), "size_per_rank")
    refused(lambda: tt.construct_module_sharding_plan(bags(), {"a": tt.row_wise()}, device_type="cuda"), "device_type")
    refused(lambda: tt.EmbeddingBagConfig(6, 4, "a", use_virtual_table=True), "use_virtual_table")
    refused(lambda: tt.quantize(bags(), torch.int8, output_dtype=torch.float16), "output_dtype")
    refused(lambda: tt.TrainPipelineSparseDist(model, None, "cpu", apply_jit=True), "apply_jit")
    refused(lambda: tt.TrainPipelineBase(model, None).reset(), "reset")
    refused(lambda: tt.JaggedTensor.empty().copy_(None), "copy_")
    refused(lambda: tt.DistributedModelParallel(bags(), data_parallel_wrapper=object()), "data_parallel_wrapper")
    with pytest.raises(NotImplementedError, match="env of 5 of 1 ranks"):
        tt.DistributedModelParallel(bags(), tt.ShardingEnv.from_local(5, 0))
    with pytest.raises(NotImplementedError, match="only names an optimizer"):
        tt.apply_optimizer_in_backward(tt.RowWiseAdagrad, torch.nn.Linear(2, 1).parameters(), {"lr": 0.1})
    with pytest.raises(NotImplementedError, match="only names an optimizer"):
        tt.RowWiseAdagrad([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    with pytest.raises(
        AttributeError, match="has no EmbeddingBagColection: the nearest name is EmbeddingBagCollection"
    ):
        tt.EmbeddingBagColection
    with pytest.raises(TypeError, match="takes no propose: the nearest is proposer"):
        tt.EmbeddingShardingPlanner(propose=None)
    assert not hasattr(tt, "__wrapped__")


def test_modules_that_are_not_here_say_what_to_use():
    for path, instead in (
        ("metrics", "RecMetricModule"), ("metrics.metric_module", "RecMetricModule"), ("models.dlrm", "DLRM"),
        ("datasets.criteo", "KeyedJaggedTensor"), ("modules.mlp", "TorchRec's own"), ("utils", ""),
        ("distributed.planner.enumerators", "DistributedModelParallel"), ("optim.semi_sync", "KeyedOptimizerWrapper"),
    ):  # fmt: skip
        told = f"torchrec's {path.split('.')[0]}.* no counterpart in .*{instead}"
        with pytest.raises(ModuleNotFoundError, match=told):
            importlib.import_module(f"tessera.torch.{path}")
    with pytest.raises(NotImplementedError, match="torchrec's metrics has no counterpart"):
        tt.metrics
    with pytest.raises(ModuleNotFoundError, match="No module named"):
        importlib.import_module("tessera.torch.nothing_of_theirs")
    torchrec = pytest.importorskip("torchrec")
    found = {path.name.partition(".")[0] for path in Path(torchrec.__file__).parent.iterdir()}
    missing = [name for name in found if not name.startswith("_") and importlib.util.find_spec(f"torchrec.{name}")
               and not told_of(name)]  # fmt: skip
    assert missing == ["version"], missing


def told_of(name):
    """True if a module is here, or its import fails with a sentence."""
    try:
        importlib.import_module(f"tessera.torch.{name}")
    except ModuleNotFoundError as error:
        return "no counterpart" in str(error)
    return True


def test_a_program_of_torchrec_with_another_import():
    """Arguments by place and by name, as its documentation has them."""
    from tessera.torch.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
    from tessera.torch.distributed.types import ShardingType
    from tessera.torch.optim import RowWiseAdagrad
    from tessera.torch.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

    ebc = bags(device=torch.device("meta"))
    apply_optimizer_in_backward(RowWiseAdagrad, ebc, {"lr": 0.5})
    planner = EmbeddingShardingPlanner(
        topology=Topology(1, "cpu", local_world_size=1), batch_size=2, enumerator=None, proposer=None, debug=False,
        storage_reservation=tt.distributed.planner.storage_reservations.HeuristicalStorageReservation(percentage=0.1),
        constraints={"a": ParameterConstraints([ShardingType.TABLE_WISE.value], ["fused"], None, [2.0])},
    )  # fmt: skip
    plan = planner.collective_plan(ebc, tt.get_default_sharders(), None)
    model = tt.distributed.DistributedModelParallel(
        ebc, tt.ShardingEnv.from_local(1, 0), torch.device("cpu"), plan, tt.get_default_sharders(), True
    )
    before = model.full_state_dict()["embedding_bags.a.weight"]
    out = model(tt.KeyedJaggedTensor(["x"], torch.tensor([1, 1, 5]), lengths=torch.tensor([2, 1])).pin_memory()
                if torch.cuda.is_available() else tt.KeyedJaggedTensor(["x"], torch.tensor([1, 1, 5]),
                                                                       lengths=torch.tensor([2, 1])))  # fmt: skip
    out.values().sum().backward()
    moved = model.full_state_dict()["embedding_bags.a.weight"] != before
    assert moved.any(1).tolist() == [False, True, False, False, False, True]
    assert [name for name, _ in model.bare_named_parameters()] == ["embedding_bags.a.weight"]
    assert model.sparse_grad_parameter_names() == []
    assert pickle.loads(pickle.dumps(tt.distributed.planner)) is tt.distributed.planner  # as notebooks' functions are
    assert tt.apply_to_all(ebc, tt.row_wise()) == {"a": tt.row_wise()}
    config = tt.EmbeddingConfig(4, 2, "b", feature_names=["x", "y"])
    assert config.get_weight_init_max() == 0.5 == -config.get_weight_init_min() and config.num_features() == 2
    sequences = tt.EmbeddingCollection([config], torch.device("cpu"), True)
    assert sequences.embedding_dim() == 2 and sequences.embedding_names_by_table() == [["x", "y"]]
    dense = torch.nn.Linear(2, 1)
    keyed = tt.KeyedOptimizerWrapper(dict(dense.named_parameters()), lambda p: torch.optim.Adam(p, lr=0.1))
    keyed.init_state()
    assert set(keyed.state_dict()["state"]) == {"weight", "bias"}


def test_rows_of_bfloat16():
    table = tt.EmbeddingBagConfig(6, 4, "a", tt.DataType.BF16, ["x"])
    ebc = tt.EmbeddingBagCollection([table], optimizer=tessera.Optimizer("exact_sgd", learning_rate=0.5))
    assert ebc.state_dict()["embedding_bags.a.weight"].dtype is torch.bfloat16
    ebc.load_state_dict({"embedding_bags.a.weight": torch.full((6, 4), 1.5, dtype=torch.bfloat16)})
    assert ebc.core.weight("a").tolist() == [[1.5] * 4] * 6


def test_the_page_runs_as_pasted():
    page = (Path(__file__).resolve().parents[3] / "docs" / "python.md").read_text()
    begin = "python\nimport torch, tessera.torch as torchrec"
    (block,) = [text for text in page.split("```") if text.startswith(begin)]
    names = {}
    exec(block[len("python\n") :], names)
    assert names["loss"].item() > 0 and names["model"].module.over.weight.grad is not None


TYPED = """
import tessera
import tessera.torch as torchrec
from tessera.torch.distributed.planner import EmbeddingShardingPlanner, Topology
from tessera.torch.modules.embedding_configs import EmbeddingBagConfig
from tessera.torch.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from tessera.torch.quant.embedding_modules import EmbeddingBagCollection as Quantized

config: EmbeddingBagConfig = torchrec.EmbeddingBagConfig(4, 2, "a", feature_names=["x"])
planner: EmbeddingShardingPlanner = EmbeddingShardingPlanner(Topology(2))
kind: type = Quantized
tessera.Optimizer("exact_sgd", learning_rate=0.1)
"""
MISSPELT = (
    ("import tessera.torch\ntessera.torch.EmbeddingBagColection", "EmbeddingBagColection"),
    ("from tessera.torch.distributed.planner import Topologie", "Topologie"),
    ("from tessera.torch.distributed.planers import Topology", "planers"),
    ("import tessera\ntessera.Optimiser", "Optimiser"),
    ("import tessera.torch as tt\ntt.KeyedJaggedTensor.concatenate", "concatenate"),
)


def test_type_checkers_know_the_names(tmp_path):
    api = pytest.importorskip("mypy.api")
    package = Path(tt.__file__).parent
    for path in tt._counterpart._PATHS.split():
        place = package.joinpath(*path.split("."))
        assert place.with_suffix(".pyi").exists() or (place / "__init__.pyi").exists(), path
    for i, (text, name) in enumerate([(TYPED, ""), *MISSPELT]):
        (tmp_path / f"program{i}.py").write_text(text)
    files = [str(tmp_path / f"program{i}.py") for i in range(len(MISSPELT) + 1)]
    options = ["--no-implicit-reexport", "--cache-dir", str(tmp_path / "cache"), "--no-error-summary"]
    told = api.run([*options, *files])[0].splitlines()
    found = [[line for line in told if f"program{i}.py" in line and "error" in line] for i in range(len(files))]
    assert not found[0], found[0]
    for lines, (_, name) in zip(found[1:], MISSPELT):
        assert len(lines) == 1 and name in lines[0], (name, lines)


def test_public_methods_have_a_docstring():
    for name in tt.__all__:
        found = getattr(tt, name)
        assert inspect.getdoc(found), name
        for key, value in vars(found).items() if inspect.isclass(found) else ():
            ours = inspect.isfunction(value) and str(value.__module__).startswith("tessera")
            assert key.startswith("_") or not ours or inspect.getdoc(value), f"{name}.{key}"
    for key in "values weights lengths offsets weights_or_none".split():
        assert inspect.getdoc(getattr(tt.KeyedJaggedTensor, key)), key
