package kbit.telemetry;

import java.util.Map;

/** The little JSON that an event needs: objects of numbers and of strings. */
final class Json {
  private Json() {}

  static String event(String kind, String scope, Map<String, Double> numbers, Map<String, String> labels) {
    StringBuilder out = new StringBuilder("{\"kind\":").append(quote(kind)).append(",\"scope\":").append(quote(scope));
    out.append(",\"numbers\":{");
    String comma = "";
    for (Map.Entry<String, Double> entry : numbers.entrySet()) {
      out.append(comma).append(quote(entry.getKey())).append(':').append(entry.getValue());
      comma = ",";
    }
    out.append("},\"labels\":{");
    comma = "";
    for (Map.Entry<String, String> entry : labels.entrySet()) {
      out.append(comma).append(quote(entry.getKey())).append(':').append(quote(entry.getValue()));
      comma = ",";
    }
    return out.append("}}").toString();
  }

  /** ASCII only, so that no reader takes a character for a line end. */
  static String quote(String text) {
    StringBuilder out = new StringBuilder("\"");
    for (char c : (text == null ? "" : text).toCharArray()) {
      if (c == '"' || c == '\\') {
        out.append('\\').append(c);
      } else if (c < ' ' || c > '~') {
        out.append(String.format("\\u%04x", (int) c));
      } else {
        out.append(c);
      }
    }
    return out.append('"').toString();
  }
}
