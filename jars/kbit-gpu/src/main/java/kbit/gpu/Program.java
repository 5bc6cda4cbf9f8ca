package kbit.gpu;

import ai.rapids.cudf.DType;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;

/**
 * What Python makes out of a decoder plan: kernels, the buffers that they fill, and the columns over these.
 *
 * @param lanes how many lanes are counted; lane 0 are the rows
 * @param warp whether 32 threads share a row
 * @param codes what the kernels' status 2, 3, … stand for
 * @param columns the fields of the value, in order
 */
record Program(
    String source, int lanes, boolean warp, List<String> codes, List<Buffer> buffers, List<Span> spans, List<Node> columns) {
  /** What a node has in place of a buffer that it does not need. */
  static final int NONE = -1;

  /** {@code width * (elements of the lane + extra)} bytes. */
  record Buffer(int lane, int width, int extra) {}

  /** Bytes that are copied from the payloads after the kernel {@code fill}; the numbers are those of buffers. */
  record Span(int lane, int source, int offsets, int data) {}

  /** A column. {@code valid} is the buffer of its flags, one byte an element, or {@link #NONE}. */
  sealed interface Node permits Fixed, Bytes, Items, Struct {
    int lane();

    int valid();
  }

  record Fixed(int lane, int valid, DType type, int data) implements Node {}

  /** Text or binary; {@code child} is the lane of the bytes, {@link #NONE} for a tensor. */
  record Bytes(int lane, int valid, boolean string, int offsets, int data, int child) implements Node {}

  record Items(int lane, int valid, int offsets, int child, Node item) implements Node {}

  record Struct(int lane, int valid, List<Node> children) implements Node {}

  private static final ObjectMapper JSON = new ObjectMapper();

  private static final Map<String, Program> PARSED = new ConcurrentHashMap<>();

  /**
   * Returns the program of a text, parsed once a process: each task of each batch has a function of its own and asks
   * anew, and a JVM that is not warm yet takes 5 to 40 ms to parse one of 200 columns.
   */
  static Program of(String text) {
    return PARSED.computeIfAbsent(text, Program::parse);
  }

  /** Throws IllegalArgumentException where the text is no program. */
  static Program parse(String text) {
    try {
      JsonNode tree = JSON.readTree(text);
      Program program = new Program(
          tree.required("source").asText(),
          tree.required("lanes").asInt(),
          tree.required("warp").asBoolean(),
          all(tree.required("codes"), JsonNode::asText),
          all(tree.required("buffers"), Program::buffer),
          all(tree.required("spans"), Program::span),
          all(tree.required("columns"), Program::node));
      program.check();
      return program;
    } catch (JsonProcessingException | IllegalArgumentException error) {
      throw new IllegalArgumentException("this is no program for the GPU: " + error.getMessage(), error);
    }
  }

  /** Returns the buffers that columns keep; all others are done with when the columns are made. */
  BitSet kept() {
    BitSet kept = new BitSet();
    for (Node column : columns) keep(column, kept);
    return kept;
  }

  /** Returns whether a null has bytes all the same: in tensors that are never null, for they have a place in each row. */
  boolean hasBytesOfNulls() {
    return columns.stream().anyMatch(column -> column instanceof Bytes bytes && bytes.child() == NONE);
  }

  private static void keep(Node node, BitSet kept) {
    if (node instanceof Fixed fixed) kept.set(fixed.data());
    if (node instanceof Struct struct) struct.children().forEach(child -> keep(child, kept));
    if (node instanceof Bytes bytes) {
      kept.set(bytes.offsets());
      kept.set(bytes.data());
    }
    if (node instanceof Items items) {
      kept.set(items.offsets());
      keep(items.item(), kept);
    }
  }

  private static <T> List<T> all(JsonNode nodes, Function<JsonNode, T> make) {
    List<T> list = new ArrayList<>(nodes.size());
    for (JsonNode node : nodes) list.add(make.apply(node));
    return List.copyOf(list);
  }

  private static Buffer buffer(JsonNode tree) {
    return new Buffer(number(tree, "lane"), number(tree, "width"), number(tree, "extra"));
  }

  private static Span span(JsonNode tree) {
    return new Span(number(tree, "lane"), number(tree, "source"), number(tree, "offsets"), number(tree, "data"));
  }

  private static Node node(JsonNode tree) {
    int lane = number(tree, "lane");
    int valid = optional(tree, "valid");
    String kind = tree.required("kind").asText();
    return switch (kind) {
      case "fixed" -> new Fixed(lane, valid, CudfTypes.fixed(tree.required("type")), number(tree, "data"));
      case "bytes" -> new Bytes(
          lane, valid, tree.required("string").asBoolean(), number(tree, "offsets"), number(tree, "data"),
          optional(tree, "child"));
      case "list" -> new Items(lane, valid, number(tree, "offsets"), number(tree, "child"), node(tree.required("item")));
      case "struct" -> new Struct(lane, valid, all(tree.required("children"), Program::node));
      default -> throw new IllegalArgumentException("there is no kind of column " + kind);
    };
  }

  private static int number(JsonNode tree, String name) {
    return tree.required(name).asInt();
  }

  private static int optional(JsonNode tree, String name) {
    return tree.path(name).asInt(NONE);
  }

  private void check() {
    for (Buffer buffer : buffers) checkLane(buffer.lane());
    for (Span span : spans) {
      checkLane(span.lane());
      checkBuffers(span.source(), span.offsets(), span.data());
    }
    columns.forEach(this::check);
  }

  private void check(Node node) {
    checkLane(node.lane());
    if (node.valid() != NONE) checkBuffers(node.valid());
    if (node instanceof Fixed fixed) checkBuffers(fixed.data());
    if (node instanceof Struct struct) struct.children().forEach(this::check);
    if (node instanceof Bytes bytes) {
      checkBuffers(bytes.offsets(), bytes.data());
      if (bytes.child() != NONE) checkLane(bytes.child());
    }
    if (node instanceof Items items) {
      checkBuffers(items.offsets());
      checkLane(items.child());
      check(items.item());
    }
  }

  private void checkLane(int lane) {
    if (lane < 0 || lane > lanes) throw new IllegalArgumentException("lane " + lane + " of 0 to " + lanes);
  }

  private void checkBuffers(int... numbers) {
    for (int number : numbers) {
      if (number < 0 || number >= buffers.size()) {
        throw new IllegalArgumentException("buffer " + number + " of " + buffers.size());
      }
    }
  }
}
