// Hands columns to Arrow through its C data interface, without a copy: the buffers stay the Python objects'.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <vector>

#include "arrow_abi.hpp"
#include "bindings.hpp"
#include "py_buffer.hpp"

namespace nb = nanobind;

namespace ringlog {
namespace {

// Arrow may release what it was given from any thread, even after the interpreter has gone.
class MaybeGil {
public:
    MaybeGil() : alive_(Py_IsInitialized() != 0) {
        if (alive_) state_ = PyGILState_Ensure();
    }
    ~MaybeGil() {
        if (alive_) PyGILState_Release(state_);
    }
    MaybeGil(const MaybeGil&) = delete;
    MaybeGil& operator=(const MaybeGil&) = delete;
    bool alive() const noexcept { return alive_; }

private:
    bool alive_;
    PyGILState_STATE state_{};
};

// An ArrowSchema or ArrowArray, released with its owner unless a consumer has moved it out.
template <class Struct>
struct Release {
    void operator()(Struct* owned) const {
        if (owned->release != nullptr) owned->release(owned);
        delete owned;
    }
};
template <class Struct>
using Owned = std::unique_ptr<Struct, Release<Struct>>;

template <class Struct>
Owned<Struct> make_owned() {
    return Owned<Struct>(new Struct{});
}

struct SchemaOwner {
    std::string format;
    std::string name;
    std::vector<Owned<ArrowSchema>> children;
    std::vector<ArrowSchema*> pointers;
};

struct ArrayOwner {
    std::vector<PyBuffer> held;
    std::vector<const void*> buffers;
    std::vector<Owned<ArrowArray>> children;
    std::vector<ArrowArray*> pointers;
};

void release_schema(ArrowSchema* schema) {
    delete static_cast<SchemaOwner*>(schema->private_data);
    schema->release = nullptr;
}

void release_array(ArrowArray* array) {
    const MaybeGil gil;
    // Without an interpreter there is nobody left to give the buffers back to.
    if (gil.alive()) delete static_cast<ArrayOwner*>(array->private_data);
    array->release = nullptr;
}

// One node of the tree that Python describes: (name, format, nullable, length, buffers, children).
struct Node {
    explicit Node(const nb::tuple& tree)
        : name(nb::cast<std::string>(tree[0])),
          format(nb::cast<std::string>(tree[1])),
          nullable(nb::cast<bool>(tree[2])),
          length(nb::cast<int64_t>(tree[3])),
          buffers(nb::cast<nb::tuple>(tree[4])),
          children(nb::cast<nb::tuple>(tree[5])) {}

    std::string name;
    std::string format;
    bool nullable;
    int64_t length;
    nb::tuple buffers;
    nb::tuple children;
};

void fill_schema(const nb::tuple& tree, ArrowSchema* schema) {
    const Node node(tree);
    auto owner = std::make_unique<SchemaOwner>();
    owner->format = node.format;
    owner->name = node.name;
    for (const nb::handle child : node.children) {
        owner->children.push_back(make_owned<ArrowSchema>());
        fill_schema(nb::cast<nb::tuple>(child), owner->children.back().get());
        owner->pointers.push_back(owner->children.back().get());
    }
    *schema = ArrowSchema{owner->format.c_str(),
                          owner->name.c_str(),
                          nullptr,
                          node.nullable ? kArrowNullable : 0,
                          static_cast<int64_t>(owner->pointers.size()),
                          owner->pointers.data(),
                          nullptr,
                          &release_schema,
                          owner.get()};
    static_cast<void>(owner.release());
}

void fill_array(const nb::tuple& tree, ArrowArray* array) {
    const Node node(tree);
    auto owner = std::make_unique<ArrayOwner>();
    int64_t null_count = 0;
    for (const nb::handle buffer : node.buffers) {
        if (buffer.is_none()) {
            owner->buffers.push_back(nullptr);
            continue;
        }
        if (owner->buffers.empty()) null_count = -1;  // there is a validity bitmap: whoever cares counts it
        owner->buffers.push_back(owner->held.emplace_back(buffer).data());
    }
    for (const nb::handle child : node.children) {
        owner->children.push_back(make_owned<ArrowArray>());
        fill_array(nb::cast<nb::tuple>(child), owner->children.back().get());
        owner->pointers.push_back(owner->children.back().get());
    }
    *array = ArrowArray{node.length,
                        null_count,
                        0,
                        static_cast<int64_t>(owner->buffers.size()),
                        static_cast<int64_t>(owner->pointers.size()),
                        owner->buffers.data(),
                        owner->pointers.data(),
                        nullptr,
                        &release_array,
                        owner.get()};
    static_cast<void>(owner.release());
}

// A capsule owns its structure until a consumer moves it out.
template <class Struct, const char* const& Name>
void destroy_capsule(PyObject* capsule) {
    Owned<Struct>(static_cast<Struct*>(PyCapsule_GetPointer(capsule, Name))).reset();
}

template <class Struct, const char* const& Name>
nb::object capsule_of(Owned<Struct> owned) {
    auto capsule = nb::steal(PyCapsule_New(owned.get(), Name, &destroy_capsule<Struct, Name>));
    if (!capsule.is_valid()) throw nb::python_error();
    static_cast<void>(owned.release());
    return capsule;
}

nb::tuple export_arrow(const nb::tuple& tree) {
    auto schema = make_owned<ArrowSchema>();
    fill_schema(tree, schema.get());
    const nb::object schema_capsule = capsule_of<ArrowSchema, kSchemaCapsule>(std::move(schema));
    auto array = make_owned<ArrowArray>();
    fill_array(tree, array.get());
    return nb::make_tuple(schema_capsule, capsule_of<ArrowArray, kArrayCapsule>(std::move(array)));
}

}  // namespace

void bind_arrow(nb::module_& m) { m.def("export_arrow", &export_arrow, nb::arg("tree")); }

}  // namespace ringlog
