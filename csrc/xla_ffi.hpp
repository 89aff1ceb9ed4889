// XLA's foreign function interface, as far as it is read here. It is a C ABI whose structs carry their sizes;
// the build needs no XLA, and `readable` says whether the one that calls has the same idea of them.
#pragma once
#include <cstddef>
#include <cstdint>

namespace hs::xla {

struct Extension {
    size_t struct_size;
    int type;
    Extension* next;
};

struct Version {
    size_t struct_size;
    Extension* extensions;
    int major, minor;
};

struct Buffer {
    size_t struct_size;
    Extension* extensions;
    int dtype;
    void* data;
    int64_t rank;
    int64_t* sizes;
};

struct Buffers {
    size_t struct_size;
    Extension* extensions;
    int64_t count;
    int* types;
    Buffer** items;
};

struct Scalar {
    int dtype;
    void* value;
};

struct Attributes {
    size_t struct_size;
    Extension* extensions;
    int64_t count;
    int* types;
    void** names;
    Scalar** items;
};

struct Error;

struct ErrorArguments {
    size_t struct_size;
    Extension* extensions;
    const char* message;
    int code;
};

struct Api {
    size_t struct_size;
    Extension* extensions;
    Version version;
    const void* internal;
    Error* (*create_error)(ErrorArguments*);
};

struct Frame {
    size_t struct_size;
    Extension* extensions;
    const Api* api;
    void* context;
    int stage;
    Buffers arguments, results;
    Attributes attributes;
};

// XLA asks a handler for its version by a call with this extension, when the handler is registered.
struct Metadata {
    size_t struct_size;
    Version version;
    uint32_t traits;
};

struct MetadataExtension {
    Extension base;
    Metadata* metadata;
};

constexpr int metadata_extension = 1, scalar_attribute = 3;
constexpr int type_int32 = 4, type_float32 = 11, type_float64 = 12;
constexpr int invalid_argument = 3, resource_exhausted = 8, internal_error = 13;
// The structs are those of versions 0.1 (JAX 0.5) to 0.3 (JAX 0.10).
constexpr int major_version = 0, minor_version = 1;

inline bool readable(const Frame& frame) {
    return frame.arguments.struct_size == sizeof(Buffers) && frame.results.struct_size == sizeof(Buffers) &&
           frame.attributes.struct_size == sizeof(Attributes);
}

// The handlers: operands and results are described where they are defined.
Error* project_handler(Frame* frame);
Error* centered_handler(Frame* frame);
Error* box_handler(Frame* frame);
Error* box_centered_handler(Frame* frame);

// Whether XLA has asked for the version, and has frames of the size expected.
bool compatible();

}    // namespace hs::xla
