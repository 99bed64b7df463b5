"""Protocol buffer messages of server configurations, built from their published definitions."""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2

_FIELD = descriptor_pb2.FieldDescriptorProto


def batching_parameters(text):
    """Parses text as `tensorflow.serving.BatchingParameters` (session_bundle_config.proto of TensorFlow Serving)."""
    file = descriptor_pb2.FileDescriptorProto(name="batching.proto", package="tensorflow.serving", syntax="proto3")
    file.dependency.append(wrappers_pb2.DESCRIPTOR.name)
    message = file.message_type.add(name="BatchingParameters")
    names = ("max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads")
    for number, name in enumerate(names, 1):
        wrapper = ".google.protobuf.Int64Value"
        message.field.add(name=name, number=number, type=_FIELD.TYPE_MESSAGE, type_name=wrapper, label=1)
    message.field.add(name="allowed_batch_sizes", number=6, type=_FIELD.TYPE_INT64, label=_FIELD.LABEL_REPEATED)
    message.field.add(name="pad_variable_length_inputs", number=7, type=_FIELD.TYPE_BOOL, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.serving.BatchingParameters"))
    return text_format.Parse(text, kind())
