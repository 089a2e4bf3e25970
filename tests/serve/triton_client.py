"""Asks a server with NVIDIA's stock clients:

  triton_client.py HOST:PORT MODEL REQUEST.json RESPONSE.json [GRPC_HOST:PORT]

Health, metadata, inference with JSON and with binary tensors, and the model repository; the scores have to be
those of RESPONSE.
"""
import json
import sys

import numpy as np
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

address, model, request_path, response_path, *over_grpc = sys.argv[1:]
request = json.load(open(request_path))
expected = np.array(json.load(open(response_path))["outputs"][0]["data"], dtype=np.float32)
TYPES = {"FP32": np.float32, "INT64": np.int64, "INT32": np.int32}

client = http.InferenceServerClient(address)
assert client.is_server_live() and client.is_server_ready() and client.is_model_ready(model)
assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
metadata = client.get_model_metadata(model)
assert [i["name"] for i in request["inputs"]] == [i["name"] for i in metadata["inputs"]], metadata
version = metadata["versions"][0]
assert client.is_model_ready(model, version)


def inputs(binary):
    out = []
    for tensor in request["inputs"]:
        data = np.array(tensor["data"], dtype=TYPES[tensor["datatype"]]).reshape(tensor["shape"])
        out.append(http.InferInput(tensor["name"], tensor["shape"], tensor["datatype"]))
        out[-1].set_data_from_numpy(data, binary_data=binary)
    return out


for binary in (False, True):
    for wanted in (None, [http.InferRequestedOutput("score", binary_data=binary)]):
        result = client.infer(
            model, inputs(binary), model_version=version, outputs=wanted, request_id="7", timeout=5000000
        )
        np.testing.assert_allclose(result.as_numpy("score"), expected, atol=1e-6)
        assert result.get_response()["id"] == "7"
pending = [client.async_infer(model, inputs(True)) for _ in range(20)]
for answer in pending:
    np.testing.assert_allclose(answer.get_result().as_numpy("score"), expected, atol=1e-6)
try:
    client.infer(model, inputs(True)[1:])
    raise AssertionError("a request without its first input was answered")
except InferenceServerException as e:
    assert "is missing" in e.message(), e.message()
assert [(m["name"], m["state"]) for m in client.get_model_repository_index()] == [(model, "READY")]
client.unload_model(model)
assert not client.is_model_ready(model)
client.load_model(model)
assert client.is_model_ready(model, version)
print("tritonclient: every answer is right")

if over_grpc:  # the same over gRPC
    import tritonclient.grpc as grpc

    client = grpc.InferenceServerClient(over_grpc[0])
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready(model)
    assert client.get_model_metadata(model).versions == [version]
    tensors = []
    for tensor in request["inputs"]:
        data = np.array(tensor["data"], dtype=TYPES[tensor["datatype"]]).reshape(tensor["shape"])
        tensors.append(grpc.InferInput(tensor["name"], tensor["shape"], tensor["datatype"]))
        tensors[-1].set_data_from_numpy(data)
    for wanted in (None, [grpc.InferRequestedOutput("score")]):
        result = client.infer(model, tensors, model_version=version, outputs=wanted, request_id="7", client_timeout=60)
        np.testing.assert_allclose(result.as_numpy("score"), expected, atol=1e-6)
        assert result.get_response().id == "7"
    try:
        client.infer(model, tensors[1:])
        raise AssertionError("a request without its first input was answered")
    except InferenceServerException as e:
        assert "is missing" in e.message(), e.message()
    assert [(m.name, m.state) for m in client.get_model_repository_index().models] == [(model, "READY")]
    client.unload_model(model)
    assert not client.is_model_ready(model)
    client.load_model(model)
    assert client.is_model_ready(model, version)
    print("tritonclient.grpc: every answer is right")
