package kbit.gpu;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/** A program written by hand; {@code main} writes what {@link Check} takes into a folder. */
final class TinyProgram {
  static final String PLAN = Kernels.read("tiny.plan.json");

  /** Good ones, one of each fault that the kernel names, and such that it leaves to the CPU. */
  static final List<String> PAYLOADS = List.of(
      "0200", "040206010203", "null", "", "02", "0202060102", "0204", "02000000", "9a0100", "9a01020411ff", "9a01020411",
      "808080801000", "ffffffffff7f00", "0302fe", "010200", "0202c801" + "ab".repeat(100));

  private TinyProgram() {}

  static String text() throws Exception {
    ObjectMapper json = new ObjectMapper();
    ObjectNode program = (ObjectNode) json.readTree(Kernels.read("tiny.json"));
    return json.writeValueAsString(program.put("source", Kernels.read("tiny.cu")));
  }

  public static void main(String[] args) throws Exception {
    Path folder = Files.createDirectories(Path.of(args[0]));
    Files.writeString(folder.resolve("plan.json"), PLAN);
    Files.writeString(folder.resolve("program.json"), text());
    Files.write(folder.resolve("payloads.txt"), PAYLOADS);
  }
}
